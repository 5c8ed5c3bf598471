"""What every recipe installs: packages of the distribution, and a stand-in for actions/runner."""

import os
import tarfile
from pathlib import Path

import lab.machines
from tests.ami.repository import Deb

KERNEL = os.uname().release
"""The kernel of this host is that of the test's machines."""

SAYS = "#!/bin/sh\necho '{}'\n"
UNIT = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n"

DOCKER = """\
#!/bin/sh
# A container has the machine's GPUs if NVIDIA's runtime is configured.
[ "$1" = run ] || { echo 'Docker version 27.5.1, build 1'; exit; }
grep -qs nvidia-container-runtime /etc/docker/daemon.json ||
  { echo 'docker: could not select device driver "" with capabilities: [[gpu]].' >&2; exit 125; }
case "$*" in "run --rm --gpus all "*) shift 5; exec "$@" ;; esac
"""

HEADERS = f"lib/modules/{KERNEL}/build/include/generated/utsrelease.h"

DEBS = (
    Deb("acl"),
    Deb("chrony", {"lib/systemd/system/chrony.service": UNIT}),
    Deb("docker-buildx"),
    Deb(
        "docker.io",
        {
            "usr/bin/docker": DOCKER,
            "usr/bin/dockerd": SAYS.format("dockerd"),
            "usr/bin/containerd": SAYS.format("containerd"),
            "lib/systemd/system/docker.service": UNIT,
            "lib/systemd/system/containerd.service": UNIT,
        },
    ),
    Deb("gcc", {"usr/bin/gcc": SAYS.format("gcc")}),
    Deb("git", {"usr/bin/git": SAYS.format("git")}),
    Deb("jq", {"usr/bin/jq": SAYS.format("jq")}),
    Deb("libc6-dev"),
    Deb("libicu-of-the-test", {"usr/lib/libicu-of-the-test": "library\n"}),
    Deb(f"linux-headers-{KERNEL}", {HEADERS: f'#define UTS_RELEASE "{KERNEL}"\n'}),
    Deb(f"linux-modules-extra-{KERNEL}"),
    Deb("make", {"usr/bin/make": SAYS.format("make")}),
    Deb("mdadm", {"sbin/mdadm": SAYS.format("mdadm")}),
    # Ubuntu has an older one, whose version is higher than that of AMD's.
    Deb("rocminfo", {"usr/bin/rocminfo": SAYS.format("of the distribution")}),
    Deb("unzip"),
    Deb("xz-utils"),
    Deb("zip"),
    Deb("zstd"),
)

PROGRAMS = Path(lab.machines.__file__).parent / "programs"

LISTENER = """\
#!/bin/bash
cd "$(dirname "$0")/.." || exit
test -e /usr/lib/libicu-of-the-test || { echo 'no libicu'; exit 134; }
if [[ "$1" == warmup ]]; then mkdir -p _diag && date > _diag/Runner_1.log && id -un > warmed-by; exit; fi
"""
"""What the listener of the real archive does besides taking jobs."""

RUNNER = {
    "run.sh": (PROGRAMS / "run.sh").read_text(),
    "bin/installdependencies.sh": (
        '#!/bin/bash\nset -e\n[ "$(id -u)" = 0 ]\napt-get install -y -q libicu-of-the-test\n'
    ),
    "bin/Runner.Listener": LISTENER + (PROGRAMS / "Runner.Listener").read_text(),
    "bin/Runner.Worker": (PROGRAMS / "Runner.Worker").read_text(),
    "bin/version": "{version}\n",
}
"""The files of the stand-in for actions/runner, by their real names. It takes jobs of the lab's GitHub."""


def make_runner(folder: Path, version: str) -> None:
    """Write runner.tar.gz."""
    tree = folder / "runner.tree"
    for path, text in RUNNER.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("{version}", version))
        file.chmod(0o755)
    archive = folder / "runner.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, ".")
