"""The runner of the two suites: `python -m tests.suites everyone|systems` (`make test`, `make test-systems`).

__main__     the command
parts        the parts of both suites
processes    starts the parts, ends them, and leaves no process behind
results      reads what pytest wrote, and words the result
"""
