"""Records as JSON: what goes in comes out, and what is damaged is named."""

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.interruptions import Rerun
from autoscaler.model.jobs import Job
from autoscaler.model.launch_requests import LaunchRequest
from autoscaler.model.machines import Machine
from autoscaler.model.runners import Runner
from autoscaler.store.bodies import DICTIONARY, compress, compress_all, decompress
from autoscaler.store.codec import (
    decode_job,
    decode_launch_request,
    decode_machine,
    decode_runner,
    encode_job,
    encode_launch_request,
    encode_machine,
    encode_runner,
)
from autoscaler.store.fields import CorruptRecordError, Fields
from autoscaler.store.rerun_codec import decode_rerun, encode_rerun
from autoscaler.store.rows import record_row
from tests.model.test_changes import PARTS
from tests.store.records import call, every_field, job, machine, rerun, runner

CODECS: list[tuple[type[Any], Callable[[Any], str], Callable[[str], Any], Any]] = [
    (Job, encode_job, decode_job, job(1)),
    (LaunchRequest, encode_launch_request, decode_launch_request, call("c")),
    (Machine, encode_machine, decode_machine, machine("m")),
    (Runner, encode_runner, decode_runner, runner("r")),
    (Rerun, encode_rerun, decode_rerun, rerun(1)),
]


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_every_record_comes_back_as_it_went_in(data: st.DataObject) -> None:
    for kind, encode, decode, _ in CODECS:
        record = data.draw(every_field(kind))
        text = encode(record)
        assert decode(text) == record
        assert text.isascii()


@pytest.mark.parametrize(("kind", "encode", "decode", "small"), CODECS)
def test_no_field_of_the_model_is_left_out(
    kind: type[Any], encode: Callable[[Any], str], decode: object, small: Any
) -> None:
    fields = {field.name for field in dataclasses.fields(kind)}
    of_parts = [dataclasses.fields(PARTS[name]) for name in fields & PARTS.keys()]
    keys = len(fields - PARTS.keys()) + sum(map(len, of_parts))
    assert len(json.loads(encode(small))) == keys


@pytest.mark.parametrize(("kind", "encode", "decode", "small"), CODECS)
def test_a_record_without_one_of_its_keys_is_refused(
    kind: type[Any], encode: Callable[[Any], str], decode: Callable[[str], Any], small: Any
) -> None:
    good = json.loads(encode(small))
    for key in good:
        rest = {other: value for other, value in good.items() if other != key}
        with pytest.raises(CorruptRecordError, match=f"^{key} is missing$"):
            decode(json.dumps(rest))


@pytest.mark.parametrize(("kind", "encode", "decode", "small"), CODECS)
def test_any_other_type_in_any_field_is_refused(
    kind: type[Any], encode: Callable[[Any], str], decode: Callable[[str], Any], small: Any
) -> None:
    good = json.loads(encode(small))
    for key in good:
        with pytest.raises(CorruptRecordError, match=key):
            decode(json.dumps({**good, key: [{"wrong": 1}]}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "{}", '{"id": 1}'])
def test_what_is_no_record_is_refused(text: str) -> None:
    for _, _, decode, _ in CODECS:
        with pytest.raises(CorruptRecordError):
            decode(text)


def test_true_is_no_number_and_a_number_is_no_flag() -> None:
    of = Fields({"flag": True, "whole": 1})
    with pytest.raises(CorruptRecordError, match="flag is not an integer"):
        of.whole("flag")
    with pytest.raises(CorruptRecordError, match="flag is not a number"):
        of.number("flag")
    with pytest.raises(CorruptRecordError, match="whole is not true or false"):
        of.flag("whole")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_no_moment_is_refused_before_it_is_queued(wrong: float) -> None:
    for record in (
        dataclasses.replace(job(1), updated_at=wrong),
        dataclasses.replace(call("c"), created_at=wrong),
        dataclasses.replace(machine("m"), since=wrong),
        dataclasses.replace(runner("r"), since=wrong),
    ):
        with pytest.raises(StoreError, match="cannot be stored"):
            record_row(record)


@settings(derandomize=True, deadline=None)
@given(st.binary())
def test_bodies_are_compressed_without_loss(body: bytes) -> None:
    assert decompress(compress(body)) == body


@settings(derandomize=True, deadline=None)
@given(st.lists(st.binary()))
def test_many_bodies_are_compressed_as_each_of_them_is(bodies: list[bytes]) -> None:
    assert compress_all(bodies) == [compress(body) for body in bodies]


def test_the_dictionary_is_the_one_that_stored_bodies_were_compressed_with() -> None:
    """Another one makes every stored body unreadable: a change needs a magic number of its own."""
    assert hashlib.sha256(DICTIONARY).hexdigest() == (
        "8ea41e3f17b25be577092122623bbd695f712e384054f5809d1f16ce63be6874"
    )


@pytest.mark.parametrize("name", ["build", "\ud800"])
def test_a_record_is_stored_without_spaces(name: str) -> None:
    assert encode_job(dataclasses.replace(job(1), name=name)).count(" ") == 0
