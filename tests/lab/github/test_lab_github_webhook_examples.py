"""Webhooks, GitHub's own examples and schemas beside the lab's payloads and the parser."""

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from jsonschema import Draft7Validator

from autoscaler.github.webhook import parse_workflow_job, verify_signature
from autoscaler.model.jobs.job import JobState
from tests.lab.github.description import description
from tests.lab.github.harness import EPOCH, SECRET, Client, HandClock, Listener, job
from tests.lab.github.npm import package_file

Make = Callable[..., Awaitable[Client]]

# The schemas of octokit/webhooks ended in 2024; these came later, and the description has them.
LATER = {"'user_view_type' was unexpected)"}


@pytest.fixture(scope="module")
def examples() -> dict[str, list[dict[str, Any]]]:
    """GitHub's examples by event."""
    kinds = json.loads(package_file("EXAMPLES", "api.github.com/index.json").read_bytes())
    return {kind["name"]: kind["examples"] for kind in kinds}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(package_file("SCHEMAS", "schema.json").read_bytes())
    return document


def _faults(schema: Mapping[str, Any], name: str, value: Any) -> list[str]:
    check = Draft7Validator({**schema, "oneOf": [{"$ref": f"#/definitions/{name}"}]})
    return [
        f"{'/'.join(map(str, error.path))}: {error.message}"
        for top in check.iter_errors(value)
        for error in (top.context or [top])
    ]


def _kind(value: Any) -> str:
    return (
        "number" if isinstance(value, int) and not isinstance(value, bool) else type(value).__name__
    )


def _kinds(value: Any, found: dict[str, set[str]], at: str = "") -> dict[str, set[str]]:
    """The types of every key of an object, by its path."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        path = f"{at}/{name}"
        found.setdefault(path, set()).add(_kind(inner))
        for item in inner if isinstance(inner, list) else [inner]:
            _kinds(item, found, path)
    return found


async def _reported(make: Make, listener: Listener, clock: HandClock) -> list[dict[str, Any]]:
    """What the lab says of jobs that meet every end."""
    client = await make(listener.url, delivery_concurrency=1)
    fine, failed, _, early, held = client.lab.push(
        [
            job("fine"),
            job("failed"),
            job("skipped", needs=("failed",)),
            job("early"),
            job("held", approval=60.0, oddities=frozenset({"queued_as_waiting"})),
        ]
    )
    client.lab.cancel(early)
    for name, conclusion in (("a", "success"), ("b", "failure")):
        runner = await client.runner(name)
        number = await runner.take()
        assert number in {fine.id, failed.id}
        await runner.send("started", job=number)
        await runner.send("completed", job=number, conclusion=conclusion)
    await clock.advance(60)
    client.lab.cancel(held)
    client.lab.rerun_failed(fine.run)
    await client.lab.delivered()
    return listener.events()


@pytest.mark.systems
@pytest.mark.case(
    "`queued` with the name and id of a runner",
    topic="GitHub's events",
    source="github/docs#12083",
)
@pytest.mark.case(
    "GitHub's own examples of `workflow_job`",
    topic="GitHub's events",
    source="@octokit/webhooks-examples",
)
def test_every_signed_example_is_parsed(
    examples: dict[str, list[dict[str, Any]]],
) -> None:
    found = examples["workflow_job"]
    assert {example["action"] for example in found} == {one.value for one in JobState}
    for example in found:
        body = json.dumps(example).encode()
        digest = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
        assert verify_signature(body, f"sha256={digest}", [SECRET.encode()])
        assert not verify_signature(body + b" ", f"sha256={digest}", [SECRET.encode()])
        seen = parse_workflow_job(body, EPOCH)
        said = example["workflow_job"]
        assert seen is not None
        assert (seen.id, seen.labels) == (said["id"], tuple(said["labels"]))
        assert seen.repository == example["repository"]["full_name"]
        waits = said["status"] == "waiting"
        assert seen.state.value == ("waiting" if waits else example["action"])
        started = seen.state in {JobState.IN_PROGRESS, JobState.COMPLETED}
        # GitHub's own example of a queued job shows a runner, which it cannot have.
        assert seen.runner_name == (said["runner_name"] if started else None)


@pytest.mark.systems
@pytest.mark.case(
    "an action or event that the controller does not use",
    topic="GitHub's events",
    source="GitHub: workflow_job events",
)
def test_other_events_of_github_give_no_job_or_are_refused(
    examples: dict[str, list[dict[str, Any]]],
) -> None:
    for name, found in examples.items():
        for example in found if name != "workflow_job" else ():
            try:
                seen = parse_workflow_job(json.dumps(example).encode(), EPOCH)
            except ValueError:
                continue
            assert seen is None, name


@pytest.mark.systems
async def test_the_labs_webhook_events_follow_githubs_schema(
    make: Make, listener: Listener, clock: HandClock, schema: dict[str, Any]
) -> None:
    events = await _reported(make, listener, clock)
    conclusions = {event["workflow_job"]["conclusion"] for event in events}
    assert conclusions == {None, "success", "failure", "cancelled", "skipped"}
    assert {event["action"] for event in events} == {one.value for one in JobState}
    older: set[str] = set()
    for event in events:
        faults = _faults(schema, f"workflow_job${event['action']}", event)
        older |= {fault.partition("(")[2] for fault in faults}
        name = f"webhook-workflow-job-{event['action'].replace('_', '-')}"
        assert description().schema_faults(f"#/components/schemas/{name}", event) == []
        seen = parse_workflow_job(json.dumps(event).encode(), EPOCH)
        assert seen is not None
        assert seen.id == event["workflow_job"]["id"]
    assert older == LATER, "an exception that is none any more, or a new fault"
    broken = {**events[0], "workflow_job": {**events[0]["workflow_job"], "run_attempt": "1"}}
    assert _faults(schema, "workflow_job$queued", broken)


@pytest.mark.systems
@pytest.mark.case(
    "GitHub's own examples of `workflow_job`",
    topic="GitHub's events",
    source="@octokit/webhooks-examples",
)
async def test_the_labs_events_have_the_form_of_githubs_examples(
    make: Make,
    listener: Listener,
    clock: HandClock,
    examples: dict[str, list[dict[str, Any]]],
) -> None:
    theirs: dict[str, set[str]] = {}
    for example in examples["workflow_job"]:
        _kinds(example, theirs)
    ours: dict[str, set[str]] = {}
    for event in await _reported(make, listener, clock):
        _kinds(event, ours)
    whole = examples["workflow_job"][-1]
    always = {path for path in _kinds(whole, {}) if path.count("/") <= 2}
    assert not {path for path in always if path not in ours}
    for path, kinds in ours.items():
        if path in theirs:
            assert kinds & theirs[path] or "NoneType" in kinds | theirs[path], path


@pytest.mark.systems
async def test_a_ping_matches_githubs_schema(make: Make, listener: Listener) -> None:
    client = await make(listener.url)
    await client.lab.delivered()
    ping = json.loads(listener.got[0][1])
    assert description().schema_faults("#/components/schemas/webhook-ping", ping) == []
    assert description().schema_faults("#/components/schemas/webhook-ping", {**ping, "hook": {}})
