"""The runner as the image installed it: its program, its account, its search path, its node's driver."""

from __future__ import annotations

import os

from autoscaler.agent.actions import BadSettings
from autoscaler.agent.host import WINDOWS, Host
from autoscaler.agent.limits import MOST_BODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

NODE_DRIVER = "/usr/local/nvidia"
"""Where GKE's device plugin mounts NVIDIA's programs (`bin`) and libraries (`lib64`) of the node
(GoogleCloudPlatform/container-engine-accelerators, `-container-path` in cmd/nvidia_gpu/nvidia_gpu.go). NVIDIA's
container runtime puts them below /usr. Images of nvidia/cuda have both folders in their variables."""


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


def with_node_driver(environment: Mapping[str, str], root: str = "") -> dict[str, str]:
    """Return the variables with the node's driver at the end of PATH and LD_LIBRARY_PATH, if there is one.

    What the image put there comes first. An empty entry would be the working directory (ld.so(8)).
    """
    changed = dict(environment)
    for variable, folder, default in (
        ("PATH", "bin", os.defpath),
        ("LD_LIBRARY_PATH", "lib64", ""),
    ):
        path = os.path.join(root + NODE_DRIVER, folder)
        known = [one for one in environment.get(variable, default).split(os.pathsep) if one]
        if os.path.isdir(path) and path not in known:
            changed[variable] = os.pathsep.join([*known, path])
    return changed
