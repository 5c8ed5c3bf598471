"""Records as JSON: decoding gives the encoded record, and names what is damaged."""

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.controller.ports.store import StoreError
from autoscaler.model.jobs.job import Job
from autoscaler.model.machines.machine import Machine
from autoscaler.store.bodies import DICTIONARY, compress, compress_all, decompress
from autoscaler.store.codec import CorruptRecordError, decode, encode
from autoscaler.store.rows import record_row
from tests.store.records import call, every_field, job, machine, rerun, runner

SMALL = [job(1), call("c"), machine("m"), runner("r"), rerun(1)]
KINDS: list[type[Any]] = [type(record) for record in SMALL]
every_record = pytest.mark.parametrize("small", SMALL, ids=lambda record: type(record).__name__)


@settings(derandomize=True, deadline=None)
@given(st.data())
def test_every_record_is_decoded_as_it_was_encoded(data: st.DataObject) -> None:
    for kind in KINDS:
        record = data.draw(every_field(kind))
        text = encode(record)
        assert decode(kind, text) == record
        assert text.isascii()


@every_record
def test_no_field_of_the_model_is_omitted(small: Any) -> None:
    assert _names(json.loads(encode(small)), "") == set(_fields(type(small), ""))


@every_record
def test_a_record_without_one_of_its_keys_is_refused(small: Any) -> None:
    good = json.loads(encode(small))
    for names in _paths(good):
        with pytest.raises(CorruptRecordError, match=f"missing required field `{names[-1]}`"):
            decode(type(small), json.dumps(_changed(good, names, lambda part, key: part.pop(key))))


@every_record
def test_any_other_type_in_any_field_is_refused(small: Any) -> None:
    def spoil(part: dict[str, Any], key: str) -> None:
        part[key] = [{"wrong": 1}]

    good = json.loads(encode(small))
    for names in _paths(good):
        with pytest.raises(CorruptRecordError, match="[.]".join(names)):
            decode(type(small), json.dumps(_changed(good, names, spoil)))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '"x"', "{}", '{"id": 1}'])
def test_a_malformed_record_is_refused(text: str) -> None:
    for kind in KINDS:
        with pytest.raises(CorruptRecordError):
            decode(kind, text)


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("id", True),
        ("id", "1"),
        ("id", 1.5),
        ("queued_at", True),
        ("disputed", 1),
        ("name", None),
        ("labels", [1]),
        ("demand", True),
        ("state", "odd"),
    ],
)
def test_a_value_of_another_type_is_not_converted(key: str, wrong: object) -> None:
    good = json.loads(encode(job(1)))
    with pytest.raises(CorruptRecordError, match=key):
        decode(Job, json.dumps({**good, key: wrong}))


@pytest.mark.parametrize("amount", [["a", 1, 2], ["a"], [1, 1], ["a", "b"], {}])
def test_a_quota_usage_is_a_name_and_an_integer(amount: object) -> None:
    good = json.loads(encode(machine("m")))
    good["placement"]["quota_usage"] = [["a", 1]]
    assert decode(Machine, json.dumps(good)).placement.quota_usage == (("a", 1),)
    good["placement"]["quota_usage"].append(amount)
    with pytest.raises(CorruptRecordError, match="quota_usage"):
        decode(Machine, json.dumps(good))


def _names(value: object, prefix: str) -> set[str]:
    """Return the key of each value, with the keys of the objects around it."""
    if not isinstance(value, dict):
        return {prefix}
    return {name for key, part in value.items() for name in _names(part, f"{prefix}.{key}")}


def _fields(kind: type[Any], prefix: str) -> Iterator[str]:
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        of = [hints[field.name], *get_args(hints[field.name])]
        part = next((one for one in of if dataclasses.is_dataclass(one)), None)
        name = f"{prefix}.{field.name}"
        yield from _fields(part, name) if isinstance(part, type) else [name]


def _paths(good: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the keys that lead to each value, and to each object."""
    for key, value in good.items():
        yield [key]
        if isinstance(value, dict):
            yield from ([key, *names] for names in _paths(value))


def _changed(
    good: dict[str, Any], names: list[str], change: Callable[[dict[str, Any], str], object]
) -> dict[str, Any]:
    bad = part = copy.deepcopy(good)
    for name in names[:-1]:
        part = part[name]
    change(part, names[-1])
    return bad


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused_before_it_is_queued(wrong: float) -> None:
    of_part = dataclasses.replace(machine("m").placement, dollars_per_hour=wrong)
    for record in (
        dataclasses.replace(job(1), updated_at=wrong),
        dataclasses.replace(call("c"), created_at=wrong),
        dataclasses.replace(machine("m"), since=wrong),
        dataclasses.replace(machine("m"), placement=of_part),
        dataclasses.replace(runner("r"), since=wrong),
        dataclasses.replace(rerun(1), due=wrong),
    ):
        with pytest.raises(StoreError) as caught:
            record_row(record)
        name = type(record).__name__
        assert str(caught.value) == f"a {name} cannot be stored: a number that is not finite"


@settings(derandomize=True, deadline=None)
@given(st.binary())
def test_bodies_are_compressed_without_loss(body: bytes) -> None:
    assert decompress(compress(body)) == body


@settings(derandomize=True, deadline=None)
@given(st.lists(st.binary()))
def test_compress_all_gives_the_same_bytes_as_compress(bodies: list[bytes]) -> None:
    assert compress_all(bodies) == [compress(body) for body in bodies]


def test_the_dictionary_is_the_one_that_stored_bodies_were_compressed_with() -> None:
    """With another dictionary every stored body is unreadable: a change needs a new magic number."""
    assert hashlib.sha256(DICTIONARY).hexdigest() == (
        "8ea41e3f17b25be577092122623bbd695f712e384054f5809d1f16ce63be6874"
    )


@pytest.mark.parametrize("name", ["build", "\ud800"])
def test_a_record_is_stored_without_spaces(name: str) -> None:
    assert encode(dataclasses.replace(job(1), name=name)).count(" ") == 0
