"""What happens to leaders in the demo, with replicas that are played."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from lab.replicas.controllers import Controllers
from lab.replicas.takeovers import Faults, Takeovers
from tests.controller.virtual_time import on_virtual_time

if TYPE_CHECKING:
    from lab.controller_process import ControllerProcess

FAULTS = Faults(killed_at=0.5, down=8.0, suspended_at=1.0, suspended=60.0, patience=30.0)


@dataclass
class PlayedReplica:
    """A replica of which the others take over 10 s after it ended or stood still."""

    name: str
    there: bool = True
    notices: bool = True
    """Whether it follows after another one took over."""
    epoch: int = 0
    url: str = ""
    calls: list[str] = field(default_factory=list)
    others: list["PlayedReplica"] = field(default_factory=list)

    async def metrics(self, _patience: float = 5.0) -> dict[str, float]:
        if not self.there:
            return {}
        return {"autoscaler_leader": float(self.epoch > 0), "autoscaler_lease_epoch": self.epoch}

    async def kill(self) -> None:
        self._goes("killed")
        self.epoch = 0

    def suspend(self) -> None:
        self._goes("suspended")

    async def start(self) -> None:
        self._comes("started")

    async def ready(self) -> None:
        self.calls.append("ready")

    def resume(self) -> None:
        self._comes("resumed")

    def _goes(self, how: str) -> None:
        self.there = False
        self.calls.append(how)
        asyncio.get_running_loop().call_later(10.0, self._taken_over, self.epoch + 1)

    def _comes(self, how: str) -> None:
        self.there = True
        self.calls.append(how)
        if self.notices and any(one.epoch > self.epoch for one in self.others):
            self.epoch = 0

    def _taken_over(self, epoch: int) -> None:
        for other in self.others:
            if other.there:
                other.epoch = epoch
                return


def replicas(count: int = 3) -> list[PlayedReplica]:
    made = [PlayedReplica(f"replica {number}") for number in range(1, count + 1)]
    for one in made:
        one.others = [other for other in made if other is not one]
    made[0].epoch = 1
    return made


async def play(
    played: list[PlayedReplica], lines: list[str], share: float = 1.0, seconds: float = 1000.0
) -> Takeovers:
    controllers = Controllers(cast("list[ControllerProcess]", played), None)
    async with Takeovers(controllers, FAULTS, lambda: share, lines.append) as takeovers:
        try:
            async with asyncio.timeout(seconds):
                while not takeovers.over:  # noqa: ASYNC110 - in virtual time
                    await asyncio.sleep(1.0)
        except TimeoutError:
            lines.append("not over")
    return takeovers


@on_virtual_time
async def test_the_leader_is_killed_and_the_next_one_suspended() -> None:
    first, second, third = played = replicas()
    lines: list[str] = []
    takeovers = await play(played, lines)
    assert lines == [
        "SIGKILL ends replica 1, which leads",
        "replica 1 is there again",
        "replica 2 leads, after 10.0 real seconds without a leader",
        "SIGSTOP suspends replica 2, which leads",
        "replica 1 leads, after 10.0 real seconds without a leader",
        "replica 2 goes on, after 60 real seconds",
    ]
    assert takeovers.problems == []
    assert [str(one) for one in takeovers.done] == [
        "Takeover: 0 s after the push, SIGKILL ended replica 1. "
        "Replica 2 leads, after 10.0 s without a leader.",
        "Takeover: 10 s after the push, SIGSTOP suspended replica 2. "
        "Replica 1 leads, after 10.0 s without a leader.",
    ]
    assert (first.calls, third.calls) == (["killed", "started", "ready"], [])
    assert second.calls[:2] == ["suspended", "resumed"]


@on_virtual_time
async def test_nothing_happens_before_enough_jobs_have_started() -> None:
    lines: list[str] = []
    await play(played := replicas(), lines, share=0.4)
    assert (lines, [one.calls for one in played]) == (["not over"], [[], [], []])
    await play(played := replicas(), lines, share=0.6)
    assert [one.calls for one in played] == [["killed", "started", "ready"], [], []]


@on_virtual_time
async def test_without_another_leader_in_time_the_replay_fails() -> None:
    takeovers = await play(replicas(1), [])
    assert takeovers.problems == ["no replica led within 30 real seconds"]
    assert takeovers.done == []


@on_virtual_time
async def test_a_replica_that_goes_on_and_says_that_it_leads_is_a_problem() -> None:
    played = replicas()
    played[1].notices = False
    takeovers = await play(played, [])
    assert takeovers.problems == ["replica 2 still says that it leads, 30 s after SIGCONT"]
    assert len(takeovers.done) == 2


@on_virtual_time
async def test_an_end_in_the_middle_resumes_the_suspended_replica() -> None:
    played = replicas()
    lines: list[str] = []
    await play(played, lines, seconds=50.0)
    assert lines[-1] == "not over"
    assert played[1].calls == ["suspended", "resumed"]
