"""Where the cluster's programs come from, and how they are built. A stand-in for Go builds them."""

import os
import subprocess
from pathlib import Path

import pytest

from lab.kubernetes.build import build_missing
from lab.kubernetes.programs import (
    CLUSTER,
    COMMAND,
    DEPLOYMENT,
    PROGRAMS,
    SETS,
    ProgramMissingError,
    built_folder,
    cache,
    find,
)

GO = """#!/bin/sh
printf '%s\\n' "$PWD $*" >> "$CALLS"
for word; do
  [ "$last" != -o ] || { echo "#!/bin/sh" > "$word"; chmod +x "$word"; }
  last="$word"
done
[ -z "$FAIL" ] || case "$*" in *"$FAIL"*) exit 1 ;; esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An empty cache, with a toolchain that is there already."""
    found = {"XDG_CACHE_HOME": str(tmp_path), "PATH": os.environ["PATH"], "FAIL": ""}
    found["CALLS"] = str(tmp_path / "calls")
    add_toolchain(found)
    return found


def add_toolchain(environment: dict[str, str]) -> None:
    go = cache(environment) / "build" / "toolchain" / "go" / "bin" / "go"
    go.parent.mkdir(parents=True)
    go.write_text(GO)
    go.chmod(0o755)


def test_a_missing_program_names_the_command_that_builds_it(environment: dict[str, str]) -> None:
    with pytest.raises(ProgramMissingError, match=f"build it .*{COMMAND}"):
        find("kube-apiserver", environment)


def test_all_programs_are_built_once_from_pinned_versions(environment: dict[str, str]) -> None:
    lines: list[str] = []
    build_missing(environment, lines.append)
    built = lines[-len(PROGRAMS) :]
    assert [line.split()[1] for line in built] == [one.name for one in PROGRAMS]
    assert built[0] == f"Building etcd {PROGRAMS[0].version} (1 of 8)"
    for programs in SETS:
        for program in programs:
            folder = built_folder(programs, environment)
            assert find(program.name, environment) == folder / program.name
    calls = Path(environment["CALLS"]).read_text().splitlines()
    assert len(calls) == len(PROGRAMS)
    assert all(" -mod=readonly " in call for call in calls)
    assert any(f"gitVersion={CLUSTER[-1].version}" in call for call in calls)
    assert not (cache(environment) / "build").exists()
    build_missing(environment, lines.append)
    assert len(Path(environment["CALLS"]).read_text().splitlines()) == len(PROGRAMS)


def test_after_a_failure_no_program_is_incomplete_and_the_next_build_continues(
    environment: dict[str, str],
) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build_missing(environment | {"FAIL": "kube-scheduler"}, lambda _: None)
    assert not built_folder(CLUSTER, environment).exists()
    build_missing(environment, lambda _: None)
    assert find("kube-scheduler", environment).parent == built_folder(CLUSTER, environment)


def test_another_helm_builds_no_other_cluster(environment: dict[str, str]) -> None:
    build_missing(environment, lambda _: None)
    calls = Path(environment["CALLS"])
    calls.unlink()
    # As if its version had changed.
    built_folder(DEPLOYMENT, environment).rename(cache(environment) / "programs-of-before")
    add_toolchain(environment)
    build_missing(environment, lambda _: None)
    built = [line.rpartition("/")[2] for line in calls.read_text().splitlines()]
    assert built == [one.package.rpartition("/")[2] for one in DEPLOYMENT]


def test_a_folder_of_programs_takes_the_place_of_a_build(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assets = tmp_path / "assets"
    assets.mkdir()
    for program in PROGRAMS:
        (assets / program.name).write_text("")
        (assets / program.name).chmod(0o755)
    named = environment | {"KUBEBUILDER_ASSETS": str(assets)}
    build_missing(named, lambda _: None)
    assert find("etcd", named) == assets / "etcd"
    assert not Path(environment["CALLS"]).exists()


def test_every_pinned_module_has_its_checksum() -> None:
    for program in PROGRAMS:
        sums = (Path("lab/kubernetes/go") / program.module / "go.sum").read_text()
        assert f"{program.project} {program.version} h1:" in sums
