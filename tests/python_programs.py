"""The first line of a program in Python that a test writes."""

import sys


def old_packer() -> str:
    """Return the beginning of a stand-in for Packer 1.6, which has no plugins to install."""
    return (
        'import sys\nif sys.argv[1:] == ["version"]:\n    print("Packer v1.6.6")\n    sys.exit()\n'
    )


def first_line(options: str = "") -> str:
    """Return a line that starts this Python, also if its path has a space, which `#!` allows in no path.

    A shell runs the second line. Python reads it as a string.
    """
    return f"""#!/bin/sh\n"exec" "{sys.executable}" {options and f'"{options}" '}"$0" "$@"\n"""
