"""The demo on a fresh Debian, as a new user runs it: pipx, then what `autoscaler init --demo` prints.

The Debian has namespaces of its own, and this host's network. An ordinary user does everything.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ami.machines import PROGRAM
from tests.ami.root import base_root
from tests.docker_images.debian import CERTIFICATES, ROOT, settings, variables

PACKAGES = ("ca-certificates", "pipx", "procps")
COPIED = (Path("/etc/resolv.conf"), Path("/etc/hosts"))

AS_ROOT = """\
set -eu
update-ca-certificates > /dev/null 2>&1
useradd --create-home newcomer
runuser -u newcomer -- env --chdir=/home/newcomer HOME=/home/newcomer "$@" bash -eu /demo.sh
echo 'processes:' $(ps -o args= -u newcomer)
echo 'files elsewhere:' $(find / -xdev -user newcomer -not -path '/home/newcomer*' -not -path '/proc/*')
cd /home/newcomer
# pipx keeps its own pip in `shared`, its cache and its logs.
echo 'files:' $(find . -type f -not -path './.cache/*' -not -path './.local/pipx/shared/*' \\
  -not -path './.local/pipx/.cache/*' -not -path './.local/pipx/logs/*' -not -name '.bash*' -not -name .profile)
"""
"""What root does before and after: the arguments are variables for the user."""

AS_USER = r"""
fail() { echo "failed: $1"; tail -n 40 *.log; exit 1; }
until_lab_says() {  # TEXT PID...: the processes that must run until then
  said=$1; shift
  until grep -q -- "$said" lab.log; do
    for pid; do kill -0 "$pid" || fail "process $pid ended before the lab said: $said"; done
    sleep 0.2
  done
}
PATH="$PATH:$HOME/.local/bin"
pipx install "$(echo /wheel/*.whl)[demo]" > pipx.log 2>&1 || fail 'pipx install'
autoscaler init --demo demo > init.log
in_terminal() {
  sed -n "s/^[0-9]*\. in a $1 terminal: //p" init.log | grep . || fail "no $1 terminal"
}
touch lab.log serve.log
eval "exec $(in_terminal first)" > lab.log 2>&1 &
lab=$!
until_lab_says 'GitHub and EC2 are up' $lab
# The command begins with variables, or with `env`.
bash -c "exec $(in_terminal second)" > serve.log 2>&1 &
serve=$!
until_lab_says 'EC2 terminates a machine' $lab $serve
grep 'A job on linux.g5.xlarge ends: success' lab.log || fail 'the job'
bash -c "$(in_terminal third)" | grep -o 'nothing is wrong' || fail 'status'
kill -TERM $serve $lab
wait $serve || fail 'serve'
wait $lab || fail 'lab'
pipx uninstall gpu-runner-autoscaler > uninstall.log 2>&1 || fail 'pipx uninstall'
rm -r demo *.log
"""


@pytest.fixture
def disk() -> Iterator[Path]:
    """What differs from a fresh Debian: the wheel, and this host's settings for pip and its network."""
    assert os.geteuid() == 0, "makes a root file system; run: sudo make test-systems"
    with tempfile.TemporaryDirectory(prefix="demo-root-") as folder:
        # A machine's control group has the name of its disk.
        made = Path(folder) / Path(folder).name
        for file in (*settings(), *COPIED, *CERTIFICATES.glob("*.crt")):
            target = made / str(file)[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            if file.is_file():
                shutil.copyfile(file, target)
        (made / "wheel").mkdir()
        (made / "wheel").chmod(0o755)
        made.chmod(0o755)
        into = str(made / "wheel")
        build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", into)
        subprocess.run(build, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        (made / "demo.sh").write_text(AS_USER)
        yield made


@pytest.mark.wait_limit(seconds=340, reason="installs forty packages and moto on a busy host")
def test_an_ordinary_user_of_a_fresh_debian_runs_a_job_and_nothing_is_left(disk: Path) -> None:
    given = [f"{name}={value}" for name, value in variables().items()]
    layers = [str(base_root(PACKAGES)), str(disk), f"{disk}.work"]
    done = subprocess.run(
        [PROGRAM, *layers, "bash", "-c", AS_ROOT, "root", *given],
        env={**os.environ, "MODULE": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        *(line for line in done.stdout.splitlines() if line.endswith("ends: success")),
        "nothing is wrong",
        "processes:",
        "files elsewhere:",
        "files:",
    ], done.stdout
    assert "ends: success" in done.stdout
