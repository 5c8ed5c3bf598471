"""The runner's image: built from its Dockerfile by `autoscaler images build`, with what an agent needs."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from autoscaler.agent.checks.machine import PROGRAM
from autoscaler.images.load import load_versions
from autoscaler.providers.kubernetes.manifest.container_modes import RUNNER_HOME, WORK_FOLDER
from autoscaler.providers.kubernetes.settings import RUNNER_USER
from tests.docker_images.internet import package_repository, runner_archive, served
from tests.docker_images.workshop import Workshop, certificate

IMAGE = "localhost/runner-cuda:tests"
VERSION = load_versions().versions.runner.version


@dataclass(frozen=True)
class Internet:
    """Where the build finds the runner's archive, and the proxy for packages."""

    archive: bytes
    url: str
    proxy: str

    def options(self) -> tuple[str, ...]:
        return ("--build-arg", f"http_proxy={self.proxy}")

    def changes(self, checksum: str | None = None) -> tuple[tuple[str, str], ...]:
        """The changes of versions.yaml: this archive, and its checksum or another one."""
        file = load_versions().versions.runner.files["linux-x64"]
        assert file.url
        assert file.sha256
        right = sha256(self.archive).hexdigest()
        return ((file.url, self.url), (file.sha256, checksum or right))


@pytest.fixture(scope="module")
def internet(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    archive = runner_archive(VERSION)
    name = f"/actions-runner-linux-x64-{VERSION}.tar.gz"
    with ExitStack() as stack:
        tls = stack.enter_context(served({name: archive}, certificate(workshop.folder)))
        packages = package_repository(tmp_path_factory.mktemp("packages"))
        proxy = stack.enter_context(served(packages))
        yield Internet(archive, f"https://localhost:{tls}{name}", f"http://127.0.0.1:{proxy}")


@pytest.fixture(scope="module")
def image(workshop: Workshop, internet: Internet, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("versions")
    # As NVIDIA's base images have it.
    with_cuda = workshop.with_variable("CUDA_VERSION", "12.8.1")
    versions = with_cuda.versions(folder, "cuda", *internet.changes())
    done = with_cuda.build("runner-cuda", versions, *internet.options())
    assert done.returncode == 0, done.stdout
    return IMAGE


def test_the_runner_belongs_to_the_user_of_pods(
    workshop: Workshop, image: str, made: tuple[str, Path]
) -> None:
    settings = workshop.settings(image)
    assert settings["User"] == f"{RUNNER_USER}:{RUNNER_USER}"
    assert settings["WorkingDir"] == RUNNER_HOME
    home = made[1] / RUNNER_HOME.lstrip("/")
    files = [home, *home.rglob("*"), made[1] / "opt/hostedtoolcache"]
    assert {(one.lstat().st_uid, one.lstat().st_gid) for one in files} == {
        (RUNNER_USER, RUNNER_USER)
    }
    assert workshop.buildah("run", made[0], "--", "id", "-un") == "runner"


def test_jobs_get_the_search_path_of_the_image(
    workshop: Workshop, image: str, made: tuple[str, Path]
) -> None:
    """`env.sh` of the runner writes `.path` and `.env`, which a runner with a JIT configuration reads."""
    variables = dict(one.split("=", 1) for one in workshop.settings(image)["Env"])
    home = made[1] / RUNNER_HOME.lstrip("/")
    assert (home / ".path").read_text().strip() == variables["PATH"]
    assert "LANG=C.UTF-8" in (home / ".env").read_text().splitlines()
    assert variables["AGENT_TOOLSDIRECTORY"] == "/opt/hostedtoolcache"
    assert "http_proxy" not in variables


def test_jobs_cannot_change_the_programs_that_the_agent_runs(
    workshop: Workshop, made: tuple[str, Path]
) -> None:
    """Nothing that the user of the runner could write belongs to root, except what everybody may write."""
    find = "find / -xdev -writable ! -type l ! -user runner ! -perm -1000 -print"
    found = workshop.buildah("run", made[0], "--", "sh", "-c", f"{find} 2> /dev/null || true")
    assert [one for one in found.split() if not one.startswith(("/proc/", "/dev/", "/sys/"))] == []
    assert (
        workshop.buildah("run", made[0], "--", "sh", "-c", "command -v sudo || echo none") == "none"
    )


def test_the_runners_packages_are_installed_and_listed(
    internet: Internet, made: tuple[str, Path]
) -> None:
    bill = json.loads((made[1] / "usr/share/sbom.cdx.json").read_text())
    found = {one["name"]: one for one in bill["components"]}
    for name in ("git", "jq", "libicu74", "liblttng-ust1t64", "libssl3", "zlib1g"):
        assert found[name]["purl"].startswith(f"pkg:deb/debian/{name}@")
    runner = found["actions-runner"]
    assert runner["version"] == VERSION
    assert runner["hashes"] == [{"alg": "SHA-256", "content": sha256(internet.archive).hexdigest()}]
    assert not list((made[1] / "var/lib/apt/lists").iterdir())


def test_the_agent_finds_the_runner(workshop: Workshop, made: tuple[str, Path]) -> None:
    """The second half of the agent starts it as this user, from this folder."""
    words = ["./bin/Runner.Listener", "--version"]
    assert workshop.buildah("run", made[0], "--", *words) == VERSION
    script = f"mkdir -p {WORK_FOLDER} && test -x {RUNNER_HOME}/run.sh && python3 -V"
    assert workshop.buildah("run", made[0], "--", "sh", "-c", script).startswith("Python 3.")


def test_the_agent_finds_the_health_check_of_gpus(
    workshop: Workshop, made: tuple[str, Path]
) -> None:
    assert workshop.buildah("run", made[0], "--", PROGRAM) == "no GPU here"


def test_an_image_without_cuda_has_no_health_check_of_gpus(
    workshop: Workshop, internet: Internet, tmp_path: Path
) -> None:
    versions = workshop.versions(tmp_path, "ubuntu", *internet.changes())
    done = workshop.build("runner-cpu", versions, *internet.options())
    assert done.returncode == 0, done.stdout
    with workshop.container("localhost/runner-cpu:tests") as (_, files):
        assert (files / "home/runner/run.sh").exists()
        assert not (files / PROGRAM.lstrip("/")).exists()


def test_a_wrong_checksum_stops_the_build(
    workshop: Workshop, internet: Internet, tmp_path: Path
) -> None:
    versions = workshop.versions(tmp_path, "ubuntu", *internet.changes("0" * 64))
    done = workshop.build("runner-cpu", versions, *internet.options(), "--tag", "runner-cpu:wrong")
    assert done.returncode != 0
    assert "/runner.tar.gz: FAILED" in done.stdout
