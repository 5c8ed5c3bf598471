"""Copies of records, as the store gets them."""

from dataclasses import fields
from typing import Any

import pytest

from autoscaler.model.changes import Record, copied
from autoscaler.model.jobs.job import Job
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import (
    Interruption,
    Machine,
    Placement,
    Progress,
    Termination,
    WorkEvidence,
)

PARTS: dict[str, type[Any]] = {
    "placement": Placement,
    "progress": Progress,
    "work": WorkEvidence,
    "termination": Termination,
    "interruption": Interruption,
}


@pytest.mark.parametrize("kind", [Job, LaunchRequest, Machine, Runner, Rerun])
def test_a_copy_of_a_record_is_equal_and_independent(kind: type[Record]) -> None:
    names = [field.name for field in fields(kind)]
    values: dict[str, Any] = {name: f"value of {name}" for name in names}
    record = kind(**values | _parts(kind))
    copy = copied(record)
    assert (type(copy), copy is record, copy == record) == (kind, False, True)
    for name in names:
        setattr(record, name, "another")
    assert copy == kind(**values | _parts(kind))


def test_changing_a_part_of_a_machine_does_not_change_the_copy() -> None:
    parts = _parts(Machine)
    values: dict[str, Any] = {field.name: "" for field in fields(Machine)}
    machine = Machine(**values | parts)
    copy = copied(machine)
    for part in parts.values():
        for field in fields(part):
            setattr(part, field.name, "another")
    assert copy == Machine(**values | _parts(Machine))


def _parts(kind: type[Record]) -> dict[str, Any]:
    """Return parts of a machine with a value in every field; nothing for other records."""
    return {
        name: part(**{field.name: f"value of {field.name}" for field in fields(part)})
        for name, part in PARTS.items()
        if kind is Machine
    }
