"""The runner as the image installed it: its program, its account, its search path."""

from __future__ import annotations

import os

from autoscaler.agent.actions import BadSettings
from autoscaler.agent.host import WINDOWS, Host
from autoscaler.agent.limits import MOST_BODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def runner_program(host: Host) -> str:
    """Return the path of the runner's start script."""
    return os.path.join(host.runner_directory, "run.cmd" if WINDOWS else "run.sh")


def runner_account(host: Host) -> tuple[dict[str, Any], dict[str, str]]:
    """Return arguments for Popen that drop privileges, and the user's environment variables.

    If the agent is not root, the runner has the agent's user. Raises BadSettings if the runner would
    run as root.
    """
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return {}, {}
    import pwd  # absent on Windows

    try:
        account = pwd.getpwnam(host.runner_user or "root")
    except KeyError as error:
        raise BadSettings("the runner's user does not exist") from error
    if account.pw_uid == 0:
        raise BadSettings("the runner would run as root")
    groups = os.getgrouplist(account.pw_name, account.pw_gid)
    identity = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": groups}
    name = account.pw_name
    return identity, {"HOME": account.pw_dir, "USER": name, "LOGNAME": name}


def search_path(directory: str) -> dict[str, str]:
    """Return PATH from the image's `.path`, which config.sh and env.sh write for runsvc.sh.

    The listener reads `.env` itself (Program.cs, LoadAndSetEnv), but not `.path`. Returns nothing if
    there is no such file, or if it is not one line of text.
    """
    try:
        with open(os.path.join(directory, ".path"), encoding="utf-8") as file:
            text = file.read(MOST_BODY).strip()
    except (OSError, ValueError):
        return {}
    return {"PATH": text} if text and text.isprintable() else {}
