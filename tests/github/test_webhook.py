"""Signatures and contents of webhook bodies."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.github.webhook import (
    MAX_BODY,
    MalformedPayloadError,
    parse_workflow_job,
    verify_signature,
)
from autoscaler.model.events import JobObserved
from autoscaler.model.jobs.job import JobState

# The same examples each time, also on a busy host.
STEADY = settings(derandomize=True, deadline=None)
RECEIVED = 1_800_000_000.0


def signed(body: bytes, secret: bytes) -> str:
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


def job(**changes: Any) -> dict[str, Any]:
    fields = {
        "id": 29679449,
        "run_id": 940463255,
        "run_attempt": 2,
        "status": "queued",
        "conclusion": None,
        "name": "linux-gpu / test (default, 1, 5)",
        "workflow_name": "trunk",
        "labels": ["self-hosted", "GPU"],
        "created_at": "2027-01-15T07:59:30Z",
        "started_at": "2027-01-15T07:59:31Z",
        "completed_at": None,
        "runner_name": None,
        "steps": [],
    }
    return {name: value for name, value in {**fields, **changes}.items() if value != "missing"}


def event(action: str = "queued", **changes: Any) -> bytes:
    return json.dumps(
        {
            "action": action,
            "workflow_job": job(**changes),
            "repository": {"full_name": "acme/widgets", "private": True},
            "sender": {"login": "octocat"},
        }
    ).encode()


def parsed(body: bytes) -> JobObserved:
    observed = parse_workflow_job(body, RECEIVED)
    assert observed is not None
    return observed


@STEADY
@given(st.binary(max_size=200), st.lists(st.binary(min_size=1, max_size=40), min_size=1))
def test_a_signature_by_each_current_secret_is_valid(body: bytes, secrets: list[bytes]) -> None:
    for secret in secrets:
        assert verify_signature(body, signed(body, secret), secrets)


@STEADY
@given(st.binary(max_size=50), st.text(max_size=100), st.sampled_from(["", "sha256=", "sha1="]))
def test_no_other_text_is_a_valid_signature(body: bytes, text: str, prefix: str) -> None:
    assert not verify_signature(body, prefix + text, [b"secret"])


@STEADY
@given(st.binary(min_size=1, max_size=50), st.integers(0), st.integers(0, 7))
def test_a_body_changed_by_one_bit_is_refused(body: bytes, where: int, bit: int) -> None:
    changed = bytearray(body)
    changed[where % len(body)] ^= 1 << bit
    assert not verify_signature(bytes(changed), signed(body, b"secret"), [b"secret"])


@pytest.mark.case(
    "`X-Hub-Signature` (sha1) proves nothing",
    topic="Hostile input",
    source="GitHub: validating deliveries; gidgethub",
)
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "sha1=" + hmac.new(b"secret", b"body", hashlib.sha1).hexdigest(),
        signed(b"body", b"secret").upper(),
        signed(b"body", b"secret").removeprefix("sha256="),
        signed(b"body", b"secret") + "\n",
        " " + signed(b"body", b"secret"),
        "sha256=" + "é" * 64,
        "sha256=" + "٣" * 64,
        "sha256=\udcff",
        signed(b"body", b"other"),
    ],
)
def test_signatures_in_other_forms_and_algorithms_are_refused(header: str | None) -> None:
    assert not verify_signature(b"body", header, [b"secret", b"old"])


def test_without_a_secret_or_with_an_empty_one_no_signature_is_valid() -> None:
    assert not verify_signature(b"body", signed(b"body", b""), [])
    assert not verify_signature(b"body", signed(b"body", b""), [b""])


def test_all_fields_of_a_queued_job_are_read() -> None:
    assert parsed(event()) == JobObserved(
        at=RECEIVED,
        id=parsed(event()).id,
        state=JobState.QUEUED,
        repository="acme/widgets",
        labels=("self-hosted", "GPU"),
        queued_at=1_799_999_970.0,
        name="linux-gpu / test (default, 1, 5)",
        workflow="trunk",
        run_id=940463255,
        run_attempt=2,
    )


@pytest.mark.parametrize(
    ("action", "status", "state"),
    [
        ("queued", "queued", JobState.QUEUED),
        ("queued", "waiting", JobState.WAITING),
        ("queued", "completed", JobState.QUEUED),
        ("queued", "missing", JobState.QUEUED),
        ("waiting", "waiting", JobState.WAITING),
        ("waiting", "queued", JobState.WAITING),
        ("in_progress", "in_progress", JobState.IN_PROGRESS),
        ("in_progress", "queued", JobState.IN_PROGRESS),
        ("completed", "completed", JobState.COMPLETED),
        ("completed", "in_progress", JobState.COMPLETED),
    ],
)
def test_the_action_gives_the_state_except_queued_with_status_waiting(
    action: str, status: str, state: JobState
) -> None:
    assert parsed(event(action, status=status)).state is state


def test_a_started_job_names_its_runner_and_a_queued_one_never_does() -> None:
    started = parsed(event("in_progress", runner_name="ci-gpu-1-2-1"))
    assert (started.runner_name, started.started_at) == ("ci-gpu-1-2-1", 1_799_999_971.0)
    queued = parsed(event("queued", runner_name="another"))
    assert (queued.runner_name, queued.started_at) == (None, None)


def test_a_completed_job_has_its_conclusion() -> None:
    done = parsed(
        event(
            "completed",
            conclusion="timed_out_in_a_new_way",
            runner_name="r",
            completed_at="2027-01-15T08:00:00Z",
        )
    )
    assert done.conclusion == "timed_out_in_a_new_way"
    assert done.completed_at == 1_800_000_000.0
    assert done.started_at == 1_799_999_971.0


def test_a_skipped_job_has_no_labels_and_never_started() -> None:
    skipped = parsed(event("completed", labels=[], conclusion="skipped", runner_name=""))
    assert (skipped.labels, skipped.runner_name, skipped.started_at) == ((), None, None)


def test_fields_that_github_omits_get_defaults() -> None:
    bare = parsed(
        event(
            created_at="missing",
            run_attempt="missing",
            run_id="missing",
            workflow_name="missing",
            name=None,
            started_at="missing",
            completed_at="missing",
            conclusion="missing",
            runner_name="missing",
            steps="missing",
        )
    )
    assert (bare.queued_at, bare.run_attempt, bare.run_id) == (RECEIVED, 1, None)
    assert (bare.name, bare.workflow) == ("", "")


def test_a_time_in_the_year_one_is_ignored() -> None:
    never = "0001-01-01T00:00:00Z"
    assert parsed(event(created_at=never, started_at=never)).queued_at == RECEIVED


def test_long_or_odd_names_lose_no_job() -> None:
    observed = parsed(event(name="matrix\x00\n" + "x" * 5000))
    assert observed.name.startswith("matrix  x")
    assert len(observed.name) == 256


@pytest.mark.case(
    "an action or event that the controller does not use",
    topic="GitHub's events",
    source="GitHub: workflow_job events",
)
@pytest.mark.parametrize("body", [event("assigned"), b'{"action": "assigned"}'])
def test_an_unknown_action_gives_no_event(body: bytes) -> None:
    assert parse_workflow_job(body, RECEIVED) is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{",
        b'{"action": 5}',
        b'{"action": "queued"}',
        b"[" * 100_000,
        b'{"action":"queued","x":' + b'{"x":' * 5000 + b"1" + b"}" * 5001,
        event() + b" " * MAX_BODY,
        event(id="29679449"),
        event(id=True),
        event(id=0),
        event(id=2**63),
        event().replace(b"acme/widgets", b"acme"),
        event().replace(b"acme/widgets", b"acme/.."),
        event().replace(b"acme/widgets", b"acme/w?x=1"),
        event().replace(b"acme/widgets", b"acme/w/x"),
    ],
)
def test_a_payload_that_identifies_no_job_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedPayloadError):
        parse_workflow_job(body, RECEIVED)


@pytest.mark.case(
    "`runs-on: >` leaves a newline at the end of a label",
    topic="GitHub's events",
    source="GitHub: choosing runners",
)
@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        (["gpu\n"], ("gpu\u240a",)),
        (["a\x00\x7f"], ("a\u2400\u2421",)),
        (["a" * 257], ("a" * 255 + "\u2026",)),
        (["a"] * 101, ("a",) * 99 + ("(and 2 more)",)),
        ([1, "gpu"], ("(no text)", "gpu")),
        ("gpu", ()),
        (None, ()),
    ],
)
def test_odd_labels_discard_no_job(labels: object, shown: tuple[str, ...]) -> None:
    """No SKU can have what is shown: a label is visible ASCII, without spaces."""
    found = parse_workflow_job(event(labels=labels), RECEIVED)
    assert found is not None
    assert found.labels == shown


def test_a_lone_surrogate_discards_no_job() -> None:
    found = parse_workflow_job(event().replace(b"GPU", b"\\ud800"), RECEIVED)
    assert found is not None
    assert "\ufffd" in found.labels


@pytest.mark.parametrize(
    "odd",
    [
        {"run_id": 2**63},
        {"run_id": "7"},
        {"run_attempt": -1},
        {"status": 7},
        {"name": ["x"]},
        {"head_sha": {}},
        {"created_at": "yesterday"},
        {"created_at": 1_800_000_000},
        {"started_at": "0000-00-00T00:00:00Z"},
        {"workflow_name": "\x00" * 5000},
    ],
)
def test_an_odd_field_discards_no_job(odd: dict[str, Any]) -> None:
    """What cannot be read counts as missing."""
    missing: dict[str, Any] = dict.fromkeys(odd)
    without = parse_workflow_job(event(**missing), RECEIVED)
    found = parse_workflow_job(event(**odd), RECEIVED)
    assert found is not None
    assert without is not None
    if "workflow_name" not in odd:
        assert found == without


def test_a_runner_s_odd_name_still_says_that_the_job_ran() -> None:
    found = parse_workflow_job(event("in_progress", runner_name="r" * 257), RECEIVED)
    assert found is not None
    assert found.runner_name == "r" * 255 + "\u2026"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b" " * (MAX_BODY + 1), "body: more than 1048576 bytes"),
        (event().replace(b"GPU", b"\xff"), "body: not UTF-8"),
        (b'{"action":"queued","x":' + b'{"x":' * 5000, "body: nested too deeply"),
        (
            event().replace(b"acme/widgets", b"acme"),
            "repository.full_name: not owner/name (job 29679449)",
        ),
    ],
)
def test_a_refusal_names_its_reason(body: bytes, reason: str) -> None:
    with pytest.raises(MalformedPayloadError) as caught:
        parse_workflow_job(body, RECEIVED)
    assert str(caught.value) == reason


def test_a_refusal_repeats_no_value_of_the_body() -> None:
    with pytest.raises(MalformedPayloadError) as caught:
        parse_workflow_job(event(id="hunter2"), RECEIVED)
    assert str(caught.value) == (
        "Expected `int`, got `str` - at `$.workflow_job.id` (repository acme/widgets)"
    )
    assert caught.value.__suppress_context__


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
field_names = st.sampled_from([*job(), "action", "full_name"])
actions = st.sampled_from(["queued", "waiting", "in_progress", "completed", "other"])


@STEADY
@given(json_values)
def test_any_json_gives_an_event_none_or_malformed(value: Any) -> None:
    check(json.dumps(value).encode())


@STEADY
@given(st.binary(max_size=300))
def test_any_bytes_give_an_event_none_or_malformed(body: bytes) -> None:
    check(body)


@STEADY
@given(actions, st.dictionaries(field_names, json_values, max_size=3))
def test_any_event_with_broken_fields_gives_an_event_none_or_malformed(
    action: str, changes: dict[str, Any]
) -> None:
    check(event(action, **{k: v for k, v in changes.items() if k in job()}))


@STEADY
@given(st.integers(0), st.integers(1, 255))
def test_any_event_with_one_changed_byte_gives_an_event_none_or_malformed(
    where: int, change: int
) -> None:
    body = bytearray(event("completed", runner_name="r"))
    body[where % len(body)] ^= change
    check(bytes(body))


def check(body: bytes) -> None:
    try:
        observed = parse_workflow_job(body, RECEIVED)
    except MalformedPayloadError:
        return
    if observed is not None:
        assert observed.id > 0
        assert len(observed.labels) <= 100
        assert observed.queued_at > 0
        assert not observed.read
