"""Finds the driver that a node mounts into its containers beside the search paths of their images."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NODE_DRIVER = "/usr/local/nvidia"
"""Where GKE's device plugin mounts NVIDIA's programs (`bin`) and libraries (`lib64`) of the node
(GoogleCloudPlatform/container-engine-accelerators, `-container-path` in cmd/nvidia_gpu/nvidia_gpu.go). NVIDIA's
container runtime puts them below /usr. Images of nvidia/cuda have both folders in their variables."""


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
