"""The agent of a machine. Machines run it as one file, which `autoscaler.app.agent_file` builds.

The modules use the standard library only, of Python 3.9 and later. The product imports none of them. They
import one module of the product, `autoscaler.model.jobs.access_rules`, which follows the same rules.
"""
