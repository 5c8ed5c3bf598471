"""Why a runner ended."""

from __future__ import annotations

import collections

# Constants.cs, ReturnCode. run.sh returns 7 only where this variable is "1" (run-helper.sh.template,
# since 2.333.0); without it, and for most other codes of the listener, it returns 0.
DEPRECATED_EXIT = 7
DEPRECATED_EXIT_VARIABLE = "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE"


ExitCause = collections.namedtuple("ExitCause", ("reason", "detail"))
"""Why the runner ended: a reason of docs/bootstrap.md ("Exit reasons"), and text for people."""
