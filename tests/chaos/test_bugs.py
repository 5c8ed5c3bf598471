"""Planted bugs are found: each stored schedule has a violation with its bug, and none without it.

`make chaos-bugs` searches for every bug. Here one bug is searched for, and the other schedules are replayed.
"""

import json
import subprocess
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from autoscaler.simulator.world.schedule import Fault, JobArrival, from_json
from tests.chaos.bugs import (
    IN_TESTS,
    IN_TESTS_OF_CLUSTERS,
    IN_TESTS_OF_REPLICAS,
    PATCHES,
    WITHIN,
    hunt,
    main,
    names,
    planted,
    play_in,
    worlds_of,
)
from tests.chaos.trial import play
from tests.chaos.worlds import Worlds

pytestmark = pytest.mark.systems

SEEDS: Mapping[Worlds, Collection[int]] = {
    Worlds.EC2: IN_TESTS,
    Worlds.CLUSTERS: IN_TESTS_OF_CLUSTERS,
    Worlds.REPLICAS: IN_TESTS_OF_REPLICAS,
}
AGAIN = "the mix has changed: python -m tests.chaos.bugs --keep finds schedules anew"


def test_there_are_more_than_ten_planted_bugs_with_schedules() -> None:
    assert len(names()) > 10
    assert {path.stem for path in PATCHES.glob("*.json")} == set(names())


@pytest.fixture(scope="module")
def replays() -> dict[str, subprocess.CompletedProcess[str]]:
    """Return the result of each stored schedule with its bug planted, by the bug's name."""

    def replay(name: str) -> subprocess.CompletedProcess[str]:
        with planted(name) as copy:
            return play_in(copy, "--until-found", "--replay", str(PATCHES / f"{name}.json"))

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(names(), pool.map(replay, names()), strict=True))


@pytest.mark.parametrize("name", names())
def test_a_planted_bug_is_found_by_a_shrunken_schedule(
    name: str, replays: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    schedule = from_json((PATCHES / f"{name}.json").read_text())
    assert len(schedule) < 30
    worlds = worlds_of(name)
    assert schedule.seed in SEEDS[worlds]
    whole = worlds.schedule(schedule.seed)
    assert {*schedule.jobs, *schedule.faults} <= {*whole.jobs, *whole.faults}, AGAIN
    everything: frozenset[Fault | JobArrival] = frozenset((*whole.jobs, *whole.faults))
    assert schedule == whole.without(everything - {*schedule.jobs, *schedule.faults})
    assert play(schedule).violations == ()
    done = replays[name]
    assert done.returncode == 1, done.stdout + done.stderr
    assert "no violation" not in done.stdout


def test_the_search_finds_a_planted_bug_and_shrinks_its_schedule() -> None:
    found = hunt("sent_before_stored", tries=8)
    assert found.found, found.output
    assert found.seed < WITHIN
    assert found.events < 30
    assert json.loads((PATCHES / "sent_before_stored.json").read_text())["seed"] == found.seed


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"]])
def test_an_unknown_bug_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert "nonsense" in capsys.readouterr().err
