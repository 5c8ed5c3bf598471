"""Where the cluster's programs come from, and how they are built. A stand-in for Go builds them."""

import os
import subprocess
from pathlib import Path

import pytest

from lab.kubernetes.build import build_missing
from lab.kubernetes.programs import (
    COMMAND,
    PROGRAMS,
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
    go = cache(found) / "build" / "toolchain" / "go" / "bin" / "go"
    go.parent.mkdir(parents=True)
    go.write_text(GO)
    go.chmod(0o755)
    return found


def test_a_missing_program_names_the_command_that_builds_it(environment: dict[str, str]) -> None:
    with pytest.raises(ProgramMissingError, match=f"build it .*{COMMAND}"):
        find("kube-apiserver", environment)


def test_all_programs_are_built_once_from_pinned_versions(environment: dict[str, str]) -> None:
    lines: list[str] = []
    build_missing(environment, lines.append)
    built = lines[-len(PROGRAMS) :]
    assert [line.split()[1] for line in built] == [one.name for one in PROGRAMS]
    assert built[0] == f"Building etcd {PROGRAMS[0].version} (1 of 5)"
    for program in PROGRAMS:
        assert find(program.name, environment) == built_folder(environment) / program.name
    calls = Path(environment["CALLS"]).read_text().splitlines()
    assert len(calls) == len(PROGRAMS)
    assert all(" -mod=readonly " in call for call in calls)
    assert any(f"gitVersion={PROGRAMS[-1].version}" in call for call in calls)
    assert not (cache(environment) / "build").exists()
    build_missing(environment, lines.append)
    assert len(Path(environment["CALLS"]).read_text().splitlines()) == len(PROGRAMS)


def test_after_a_failure_nothing_is_half_there_and_the_next_build_goes_on(
    environment: dict[str, str],
) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        build_missing(environment | {"FAIL": "kube-scheduler"}, lambda _: None)
    assert not built_folder(environment).exists()
    build_missing(environment, lambda _: None)
    assert find("kube-scheduler", environment).parent == built_folder(environment)


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
