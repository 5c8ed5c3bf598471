"""Copies of records, as the store gets them."""

from dataclasses import fields
from typing import Any

import pytest

from autoscaler.model.changes import Record, copied
from autoscaler.model.interruptions import Rerun
from autoscaler.model.jobs import Job
from autoscaler.model.launch_requests import LaunchRequest
from autoscaler.model.machines import Machine
from autoscaler.model.runners import Runner


@pytest.mark.parametrize("kind", [Job, LaunchRequest, Machine, Runner, Rerun])
def test_a_copy_has_every_field_of_its_record_and_a_life_of_its_own(kind: type[Record]) -> None:
    names = [field.name for field in fields(kind)]
    values: dict[str, Any] = {name: f"value of {name}" for name in names}
    record = kind(**values)
    copy = copied(record)
    assert (type(copy), copy is record, copy == record) == (kind, False, True)
    setattr(record, names[-1], "another")
    assert [getattr(copy, name) for name in names] == [f"value of {name}" for name in names]
