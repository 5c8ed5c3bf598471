"""The named points at which a controller is killed, and what its store then shows.

Except for the commit, the services that the controller calls kill it: when its request arrives, or when it
is carried out but not answered. Each point applies once.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoscaler.model.jobs.runners import Runner, RunnerState
from autoscaler.model.machines.launch_requests import LaunchRequest, LaunchRequestState
from lab.github.settings import AnswerFault
from lab.laboratory import APP_ID, Laboratory
from lab.machines.interception import MachineRequest
from tests.lab.system.harness import CALL_TAG, Records, records_in
from tests.lab.system.mortal_controller import LastWrite, unwritten

REGISTER = "POST /orgs/{org}/actions/runners/generate-jitconfig"
Place = Callable[["Trial"], Callable[[sqlite3.Connection], None]]
"""Prepares one kill; returns a check of the dead controller's store, which may raise AssertionError."""


class AcknowledgementKiller:
    """Sees every machine's requests, and kills the controller at an acknowledgement if requested."""

    def __init__(self) -> None:
        self.unheard: Callable[[str], None] | None = None
        self.unanswered: Callable[[str], None] | None = None

    async def before(self, said: MachineRequest) -> bool:
        """Called when the machine has sent the request, and the controller has not received it."""
        if said.step != "acknowledge" or self.unheard is None:
            return True
        kill, self.unheard = self.unheard, None
        kill(said.body["runner"])
        return False

    async def after(self, said: MachineRequest, status: int, _: dict[str, Any]) -> None:
        """Called when the controller has answered, and the machine has not received the answer."""
        if said.step == "acknowledge" and status == 204 and self.unanswered is not None:
            kill, self.unanswered = self.unanswered, None
            kill(said.body["runner"])


class Trial:
    """One laboratory, its killer of machines, and where its controller finds its orders.

    `images` are, by CreateFleet's token, those that there were when it came to that call.
    """

    def __init__(self, lab: Laboratory, killer: AcknowledgementKiller, order: Path) -> None:
        self.lab = lab
        self.killer = killer
        self.order = order
        self.images: dict[str, frozenset[str]] = {}
        self.swallowed: list[str] = []

    def renew_images(self, fields: Mapping[str, str]) -> None:
        """Add a newer image of each SKU during a launch request."""
        images = self.lab.ec2.images
        there = images.named("*")
        self.images.setdefault(fields["ClientToken"], frozenset(one.id for one in there))
        for sku in self.lab.fleet.skus:
            newest = images.named(f"{sku}-*")[-1]
            images.publish(newest, f"{sku}-{len(there)}")

    def swallow(self) -> None:
        """Lose the next answer of CreateFleet, and add newer images."""

        def swallowed(fields: Mapping[str, str]) -> None:
            self.renew_images(fields)
            self.swallowed.append(fields["ClientToken"])

        self.lab.ec2.faults.lose_answers("CreateFleet", 1, then=swallowed)

    def kill_at(self, met: list[str], fields: Mapping[str, str]) -> None:
        """Kill the controller at one of its calls, and add newer images."""
        self.lab.controller.kill_at_once()
        met.append(fields["ClientToken"])
        self.renew_images(fields)


# --- after the record -------------------------------------------------------------------------


def call_arrives(trial: Trial) -> Callable[[sqlite3.Connection], None]:
    """CreateFleet arrived and is not carried out."""
    met: list[str] = []
    trial.lab.ec2.faults.cut_calls("CreateFleet", 1, lambda fields: trial.kill_at(met, fields))

    def check(store: sqlite3.Connection) -> None:
        call = _call(store, met)
        assert call.state is LaunchRequestState.SENT
        assert call.body

    return check


def template_arrives(trial: Trial) -> Callable[[sqlite3.Connection], None]:
    """A call is recorded, and its request is not known yet: its launch template is being made."""
    kill = trial.lab.controller.kill_at_once
    trial.lab.ec2.faults.cut_calls("CreateLaunchTemplate", 1, lambda _: kill())

    def check(store: sqlite3.Connection) -> None:
        recorded = [c for c in records_in(store).calls if c.state is LaunchRequestState.RECORDED]
        assert recorded
        assert {call.body for call in recorded} == {""}

    return check


def registration_arrives(trial: Trial) -> Callable[[sqlite3.Connection], None]:
    """A registration is requested and not created."""
    _drop_registration(trial, done=False)

    def check(store: sqlite3.Connection) -> None:
        registered = trial.lab.github.names_registered
        assert [one for one in _unregistered(store) if str(one.name) not in registered]

    return check


# --- after the call, after the registration -----------------------------------------------------------


def call_carried_out(trial: Trial) -> Callable[[sqlite3.Connection], None]:
    """The machines exist, and the controller got no answer."""
    met: list[str] = []
    trial.lab.ec2.faults.lose_answers(
        "CreateFleet", 1, then=lambda fields: trial.kill_at(met, fields)
    )

    def check(store: sqlite3.Connection) -> None:
        call = _call(store, met)
        made = [one for one in trial.lab.ec2.instances if one.tags[CALL_TAG] == str(call.id)]
        assert call.state is LaunchRequestState.SENT
        assert len(made) == len(call.slots)

    return check


def registered(trial: Trial) -> Callable[[sqlite3.Connection], None]:
    """The registration exists, and the controller got no answer."""
    _drop_registration(trial, done=True)

    def check(store: sqlite3.Connection) -> None:
        there = {one.name for one in trial.lab.github.runners}
        assert [one for one in _unregistered(store) if str(one.name) in there]

    return check


# --- inside a commit --------------------------------------------------------------------------


def commit_of(table: str, value: str, column: str = "state") -> Place:
    """A transaction with such a row has run all its statements, and is not committed."""

    def place(trial: Trial) -> Callable[[sqlite3.Connection], None]:
        LastWrite(table, column, value).give(trial.order)

        def check(store: sqlite3.Connection) -> None:
            row = unwritten(trial.order)
            trial.order.with_suffix(".row").unlink()
            if table == "inbox":
                log = trial.lab.github.delivery_log(APP_ID)
                assert not any(one.succeeded for one in log if one.message.guid == row["id"])
                return
            key = "name" if table == "runners" else "id"
            query = f"SELECT count(*) FROM {table} WHERE {key} = ? AND record = ?"
            assert store.execute(query, (row[key], row["record"])).fetchone() == (0,)

        return check

    return place


# --- before the acknowledgement ---------------------------------------------------------------


def acknowledgement_sent(trial: Trial) -> Callable[[sqlite3.Connection], None]:
    """A machine sent its acknowledgement, which the controller did not receive."""
    met: list[str] = []

    def kill(name: str) -> None:
        trial.lab.controller.kill_at_once()
        met.append(name)

    trial.killer.unheard = kill

    def check(store: sqlite3.Connection) -> None:
        runner = _runner(store, met)
        assert runner.state is RunnerState.REGISTERED
        assert runner.configuration_sent_at is not None

    return check


def acknowledgement_kept(trial: Trial) -> Callable[[sqlite3.Connection], None]:
    """The acknowledgement is stored, but the machine got no answer: its runner must not start yet."""
    met: list[str] = []

    def kill(name: str) -> None:
        trial.lab.controller.kill_at_once()
        met.append(name)

    trial.killer.unanswered = kill

    def check(store: sqlite3.Connection) -> None:
        assert _runner(store, met).listening_at is not None

    return check


POINTS: dict[str, tuple[Place, ...]] = {
    "after the record": (
        call_arrives,
        registration_arrives,
        template_arrives,
        call_arrives,
        registration_arrives,
    ),
    "after the call": (call_carried_out,),
    "after the registration": (registered,),
    "inside a commit": (
        commit_of("inbox", "workflow_job", "event"),
        commit_of("launch_requests", "recorded"),
        commit_of("launch_requests", "settled"),
        commit_of("runners", "registered"),
        commit_of("runners", "listening"),
    ),
    "before the acknowledgement": (acknowledgement_kept, acknowledgement_sent),
}
"""By name, the places that belong to it, taken in turn."""


def recorded_late(lab: Laboratory, records: Records) -> list[str]:
    """Return descriptions of what a killed controller sent and its store does not have."""
    tried = {call.token: call.attempts for call in records.calls}
    named = {str(runner.name) for runner in records.runners}
    slots = {str(call.id): len(call.slots) for call in records.calls}
    made = Counter(one.tags[CALL_TAG] for one in lab.ec2.instances)
    found = [
        f"call with token {token} was sent {len(sent)} times, {tried[token]} are known"
        for token, sent in lab.ec2.sendings.items()
        if token in tried and len(sent) > tried[token]
    ]
    found += [f"{n} machines of call {call}" for call, n in made.items() if n > slots.get(call, 0)]
    return found + [f"runner {name}" for name in lab.github.names_registered if name not in named]


def _drop_registration(trial: Trial, *, done: bool) -> None:
    kill = trial.lab.controller.kill_at_once
    trial.lab.github.inject_faults(AnswerFault("dropped", REGISTER, done=done, then=kill))


def _call(store: sqlite3.Connection, met: list[str]) -> LaunchRequest:
    (token,) = met
    (call,) = (one for one in records_in(store).calls if one.token == token)
    if call.body:
        assert json.loads(call.body)["ClientToken"] == token
    return call


def _runner(store: sqlite3.Connection, met: list[str]) -> Runner:
    (name,) = met
    (runner,) = (one for one in records_in(store).runners if one.name == name)
    return runner


def _unregistered(store: sqlite3.Connection) -> list[Runner]:
    """Return registrations that are recorded and not known to exist."""
    states = (RunnerState.NAMED, RunnerState.DEREGISTERING)
    found = (one for one in records_in(store).runners if one.state in states)
    return [one for one in found if one.github_id is None]
