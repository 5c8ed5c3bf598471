"""Machines with a GPU, and what NVIDIA and AMD publish for them: stand-ins that need the kernel's headers to
build a module, and whose programs answer only if the module is loaded.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from lab.machines.gpus import AmdGpu, nvidia_gpu, nvidia_log, rocminfo
from tests.ami.distribution import HEADERS, KERNEL
from tests.ami.repository import Deb, Signer, make_repository, sha256

SHIPPED = Path(__file__).parents[2] / "autoscaler" / "images" / "versions.yaml"

NVIDIA, TOOLKIT, AMD, ROCM = "580.178.04", "1.20.0", "31.50", "7.2.4"
"""The versions of versions.yaml."""

AMD_MODULE = "7.1.3.31500000"
"""What the module of release 31.50 reports: the package's version without its build (ROCm/gpu-operator#609)."""
ARCHITECTURE = "gfx1011"

DEVICES = {
    "g4dn.xlarge": ("nvidia", "0x10de", "0x1eb8", "0x030200"),
    "g4ad.xlarge": ("amdgpu", "0x1002", "0x7362", "0x038000"),
}
"""The module, vendor, device and class of the GPU, by instance type."""

MODPROBE = f"""\
#!/bin/sh
# The file of a module has its version.
if [ "$1" = -r ]; then rm -rf "/sys/module/$2"; exit; fi
file=$(find /lib/modules/{KERNEL} -name "$1.ko")
[ "$file" ] || {{ echo "modprobe: FATAL: Module $1 not found in /lib/modules/{KERNEL}" >&2; exit 1; }}
mkdir -p "/sys/module/$1"
cp "$file" "/sys/module/$1/version"
"""

BUILD = f"""\
set -e
grep -q '"{KERNEL}"' /{HEADERS}
type gcc make > /dev/null
folder=/lib/modules/{KERNEL}/updates
mkdir -p $folder
"""
"""Fails without the headers of the running kernel and a compiler."""

NVIDIA_SMI = """\
#!/bin/sh
[ -e /sys/module/nvidia/version ] ||
  { echo "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."; exit 9; }
case "$*" in
  "-q -x") cat /usr/share/nvidia/log.xml ;;
  "--query-gpu=driver_version --format=csv,noheader") cat /sys/module/nvidia/version ;;
  "-pm 1") echo 'All done.' ;;
  *) exit 2 ;;
esac
"""

NVIDIA_RUN = f"""\
#!/bin/sh
{BUILD}
[ "$*" = "--silent --no-drm --skip-module-load --kernel-module-type=open" ]
for module in nvidia nvidia-uvm; do echo {NVIDIA} > $folder/$module.ko; done
mkdir -p /usr/share/nvidia
cat > /usr/share/nvidia/log.xml << 'END'
{nvidia_log([nvidia_gpu(0, {"product_name": "Tesla T4"})], NVIDIA)}
END
cat > /usr/bin/nvidia-smi << 'END'
{NVIDIA_SMI}
END
chmod 755 /usr/bin/nvidia-smi
"""

NVIDIA_CTK = """\
#!/bin/sh
[ "$*" = "runtime configure --runtime=docker" ] || exit 1
mkdir -p /etc/docker
echo '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}' > /etc/docker/daemon.json
"""

LOADED = f'[ "$(cat /sys/module/amdgpu/version 2> /dev/null)" = {AMD_MODULE} ]'

ROCMINFO = f"""\
#!/bin/sh
{LOADED} || {{ echo 'ROCk module is NOT loaded, possibly no GPU devices'; exit 0; }}
cat << 'END'
{rocminfo([AmdGpu(ARCHITECTURE)], AMD_MODULE)}
END
"""

ASICS = json.dumps({"gpu_data": [{"gpu": 0, "asic": {"target_graphics_version": ARCHITECTURE}}]})

AMD_SMI = f"""\
#!/bin/sh
{LOADED} || {{ echo 'ERROR:root:Unable to detect any GPU devices'; exit 0; }}
[ "$*" = "static --asic --json" ] && echo '{ASICS}'
"""


def module_of(instance_type: str) -> str:
    """Return the kernel module for the GPU of an instance type, or nothing."""
    return DEVICES[instance_type][0] if instance_type in DEVICES else ""


def appear(instance_type: str) -> str:
    """Return the shell lines that make the GPU of an instance type appear."""
    if instance_type not in DEVICES:
        return ""
    folder = "/sys/bus/pci/devices/0000:00:1e.0"
    files = zip(("vendor", "device", "class"), DEVICES[instance_type][1:], strict=True)
    lines = [f"mkdir -p {folder}", *(f"echo {value} > {folder}/{name}" for name, value in files)]
    return "\n".join(lines) + "\n"


def publish(folder: Path, signer: Signer) -> None:
    """Write what NVIDIA and AMD publish, at the places where they have it."""
    (folder / "NVIDIA.run").write_text(NVIDIA_RUN)
    (folder / "gpgkey").write_bytes(signer.public)
    names = ("nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1")
    tools = [Deb(one, version=f"{TOOLKIT}-1") for one in names]
    ctk = {"usr/bin/nvidia-ctk": NVIDIA_CTK}
    newer = Deb("libnvidia-container1", version="1.21.0-1")
    toolkit = Deb("nvidia-container-toolkit", ctk, f"{TOOLKIT}-1")
    make_repository(folder / "stable/deb/amd64", [*tools, toolkit, newer], signer)

    (folder / "rocm").mkdir()
    (folder / "rocm/rocm.gpg.key").write_bytes(signer.public)
    builds = f"{BUILD}\necho {AMD_MODULE} > $folder/amdgpu.ko"
    dkms = Deb("amdgpu-dkms", {}, f"1:{AMD_MODULE}-2390945.24.04", builds)
    origin = "repo.radeon.com"
    make_repository(folder / f"amdgpu/{AMD}/ubuntu", [dkms], signer, "noble", origin)
    parts = {
        "rocm-hip-runtime": {"opt/rocm/.info/version": f"{ROCM}-93\n"},
        "rocminfo": {"opt/rocm/bin/rocminfo": ROCMINFO},
        "amd-smi-lib": {"opt/rocm/bin/amd-smi": AMD_SMI},
    }
    debs = [Deb(name, files, "1.0.70204-93~24.04") for name, files in parts.items()]
    make_repository(folder / f"rocm/apt/{ROCM}", debs, signer, "noble", origin)


def versions(folder: Path, url: str) -> str:
    """Return the shipped versions.yaml with the addresses and checksums of what `folder` serves at `url`."""
    content: dict[str, Any] = yaml.safe_load(SHIPPED.read_text())
    for entry, name, path in (
        ("nvidia-driver", "linux-x64", "NVIDIA.run"),
        ("nvidia-container-toolkit", "repository-key", "gpgkey"),
        ("amdgpu-driver", "repository-key", "rocm/rocm.gpg.key"),
    ):
        file = {"url": f"{url}/{path}", "sha256": sha256(folder / path)}
        content["programs"][entry]["files"][name] = file
    kernel = ".".join(KERNEL.split(".")[:2])
    content["programs"]["amdgpu-driver"]["newest_kernel"] = kernel
    return json.dumps(content, default=str)
