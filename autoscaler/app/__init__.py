"""The composition root: the only package that creates and connects concrete classes.

It imports none of its modules: `check` needs `preflight`, and not what `running` imports for a controller.
"""
