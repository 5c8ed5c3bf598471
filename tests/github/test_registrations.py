"""Creating, looking up and deleting registrations, and what goes wrong with them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.controller.ports.github import (
    GitHub,
    GitHubError,
    OperatorError,
    RegisteredRunner,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
    RunnerBusyError,
    RunnerExistsError,
)
from autoscaler.github.client import GitHubClient
from autoscaler.model.identifiers import JobId, RunnerName
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from lab.github.settings import AnswerFault, LabRunnerGroup
from tests.github.conftest import World, job_spec
from tests.github.doubles import START
from tests.github.faults import changed, cut, fault, hang
from tests.github.runners import LabRunner

NAME = RunnerName("ci-gpu-0a1b-2c3d-1")
REGISTER = "generate-jitconfig"
WORKFLOW = "acme/widgets/.github/workflows/ci.yml@main"
LABELS = ("self-hosted", "gpu")


def test_the_client_implements_the_github_port(client: GitHubClient) -> None:
    port: GitHub = client
    assert port is client


async def test_a_runner_is_registered_with_its_groups_id_and_exactly_its_labels(
    world: World, client: GitHubClient
) -> None:
    registered = await client.register("org:acme", "GPU", NAME, LABELS)
    assert registered.github_id == 1
    assert LabRunner(registered.jit_config).config["runner_id"] == 1
    assert registered.jit_config not in repr(registered)
    (runner,) = world.github.runners
    assert (runner.scope, runner.name, runner.group_id) == ("acme", NAME, 5)
    assert runner.labels == ("self-hosted", "gpu")


async def test_a_repositorys_runner_is_registered_there_in_its_only_group(
    world: World, client: GitHubClient
) -> None:
    await client.register("repo:acme/widgets", "Default", NAME, LABELS)
    (runner,) = world.github.runners
    assert (runner.scope, runner.group_id) == ("acme/widgets", 1)
    assert world.traffic.count("runner-groups") == 0
    with pytest.raises(OperatorError, match="no runner group"):
        await client.register("repo:acme/widgets", "gpu", NAME, LABELS)


@pytest.mark.case(
    "the number of calls grows with the number of configurations",
    topic="GitHub's REST API",
    source="GAR#5037",
)
async def test_a_hundred_registrations_at_once_need_three_more_calls(
    world: World, client: GitHubClient
) -> None:
    await asyncio.gather(
        *(client.register("org:acme", "gpu", RunnerName(f"r{n}"), LABELS) for n in range(100))
    )
    assert len(world.github.runners) == 100
    assert len(world.traffic.calls) == 103


@pytest.mark.case(
    "409: the name is registered already",
    topic="GitHub's REST API",
    source="ubicloud#692",
)
async def test_registering_a_taken_name_raises_runner_exists(client: GitHubClient) -> None:
    await client.register("org:acme", "gpu", NAME, LABELS)
    with pytest.raises(RunnerExistsError):
        await client.register("org:acme", "gpu", NAME, LABELS)


async def test_a_taken_name_is_recognised_by_its_message_too(
    world: World, client: GitHubClient
) -> None:
    """GitHub documents 409 and 422 for a name that another runner has."""
    world.github.inject_faults(
        fault(REGISTER, 422, {"message": "Already exists - a runner has it"})
    )
    with pytest.raises(RunnerExistsError):
        await client.register("org:acme", "gpu", NAME, LABELS)


async def test_a_deletion_with_an_unknown_status_is_an_error(
    world: World, client: GitHubClient
) -> None:
    world.github.inject_faults(fault("DELETE .*/actions/runners/", 200, {"id": 1}))
    with pytest.raises(GitHubError, match="200, a status that GitHub does not send here"):
        await client.delete_runner("org:acme", 1)


@pytest.mark.case(
    "503 answers in bursts",
    topic="GitHub's REST API",
    source="actions/runner#3479",
)
@pytest.mark.parametrize(
    "fault",
    [
        fault(REGISTER, 500),
        fault(REGISTER, 502, b"<html>Unicorn!</html>", {"Content-Type": "text/html"}),
        fault(REGISTER, 503, b"<html>", {"Content-Type": "application/json"}, done=True),
        fault(REGISTER, 520, b"", done=True),
        fault(REGISTER, 408),
        fault(REGISTER, 201, b"<html>", {"Content-Type": "application/json"}, done=True),
        fault(REGISTER, 201, b"<html>", {"Content-Type": "text/html"}, done=True),
        fault(REGISTER, 201, {"runner": {"id": 1}}, done=True),
        fault(REGISTER, 201, {"runner": {"id": "1"}, "encoded_jit_config": "x"}, done=True),
        fault(REGISTER, 200, b"{}", {"Content-Type": "application/json; charset=no-such"}),
        fault(REGISTER, 200, b"[" * 100_000, {"Content-Type": "application/json"}),
        fault(REGISTER, 409, b"<html>", {"Content-Type": "text/html"}),
        fault(REGISTER, 404, b"not here", {"Content-Type": "text/plain"}),
        cut(REGISTER, status=500, done=True),
        cut(REGISTER, status=500),
    ],
    ids=lambda fault: f"{fault.status}-cut={fault.kind == 'dropped'}-done={fault.done}",
)
async def test_a_registration_without_a_usable_answer_is_unknown_and_is_not_repeated(
    world: World, client: GitHubClient, fault: AnswerFault
) -> None:
    world.github.inject_faults(fault)
    with pytest.raises(RegistrationOutcomeUnknownError):
        await client.register("org:acme", "gpu", NAME, LABELS)
    assert world.traffic.count(REGISTER) == 1
    assert world.clock.slept == []


async def test_a_registration_that_times_out_is_unknown(world: World) -> None:
    world.github.inject_faults(hang(REGISTER, done=True))
    async with world.client(patience=0.3) as client:
        with pytest.raises(RegistrationOutcomeUnknownError, match="timeout"):
            await client.register("org:acme", "gpu", NAME, LABELS)
        assert world.traffic.count(REGISTER) == 1
        found = await client.find_runner("org:acme", NAME)
    assert found == RegisteredRunner(1, NAME, online=False, busy=False)


@pytest.mark.parametrize("scope", ["org:acme", "repo:acme/widgets"])
async def test_a_runner_is_read_by_its_id_and_none_is_a_404(
    world: World, client: GitHubClient, scope: str
) -> None:
    registered = await client.register(scope, "Default", NAME, LABELS)
    world.github.push([job_spec()])
    await LabRunner(registered.jit_config).start()
    found = await client.read_runner(scope, registered.github_id)
    assert found == RegisteredRunner(registered.github_id, NAME, online=True, busy=True)
    assert await client.read_runner(scope, registered.github_id + 1) is None


@pytest.mark.case(
    "lists hide a busy runner, its run and its job, while its agent is silent: only a 404 for the"
    " runner's id proves its absence",
    topic="GitHub's REST API",
    source="GitHub: get a self-hosted runner",
)
@pytest.mark.parametrize("status", [403, 404])
async def test_a_404_for_an_app_without_permission_proves_nothing(
    world: World, client: GitHubClient, status: int
) -> None:
    refusal = {"message": "Not Found", "documentation_url": "https://docs.github.com/rest"}
    world.github.inject_faults(fault(r"actions/runners\?", status, refusal, times=9))
    with pytest.raises(OperatorError):
        await client.read_runner("org:acme", 7)
    assert world.traffic.count(r"actions/runners/7") == 1


async def test_an_answer_about_another_runner_is_an_error(
    world: World, client: GitHubClient
) -> None:
    await client.register("org:acme", "gpu", NAME, LABELS)
    world.github.inject_faults(
        changed("GET .*/actions/runners/1$", lambda shown: shown | {"id": 2})
    )
    with pytest.raises(RetryLaterError, match="another runner"):
        await client.read_runner("org:acme", 1)


async def test_a_registration_that_was_not_sent_may_be_repeated(world: World) -> None:
    async with world.client() as client:
        await client.find_runner("org:acme", NAME)
        world.github.inject_faults(fault("runner-groups", 503, times=9))
        with pytest.raises(RetryLaterError):
            await client.register("org:acme", "gpu", NAME, LABELS)
    assert world.traffic.count(REGISTER) == 0


@pytest.mark.case(
    "GitHub refuses a registration (no such group, not 1 to 100 labels, a full group): an "
    "operator sees the reason",
    topic="GitHub's REST API",
    source="GitHub: REST, self-hosted runners; GitHub: Actions limits",
)
@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_a_refused_registration_raises_operator_error(
    world: World, client: GitHubClient, status: int
) -> None:
    refusal = {"message": "Resource not accessible by integration"}
    world.github.inject_faults(fault(REGISTER, status, refusal))
    with pytest.raises(OperatorError, match="Resource not accessible"):
        await client.register("org:acme", "gpu", NAME, LABELS)


@pytest.mark.case(
    "GitHub refuses a registration (no such group, not 1 to 100 labels, a full group): an "
    "operator sees the reason",
    topic="GitHub's REST API",
    source="GitHub: REST, self-hosted runners; GitHub: Actions limits",
)
async def test_after_a_refused_registration_the_runner_groups_are_read_again(
    world: World, client: GitHubClient
) -> None:
    await client.register("org:acme", "gpu", NAME, LABELS)
    world.administration.replace_groups("acme", LabRunnerGroup("gpu", id=9))
    world.github.inject_faults(fault(REGISTER, 422, {"message": "Invalid runner group"}))
    with pytest.raises(OperatorError):
        await client.register("org:acme", "gpu", RunnerName("r2"), LABELS)
    await client.register("org:acme", "gpu", RunnerName("r2"), LABELS)
    assert world.github.runners[-1].group_id == 9


async def test_a_new_group_is_found_and_a_missing_one_is_not_looked_for_each_time(
    world: World, client: GitHubClient
) -> None:
    for _ in range(5):
        with pytest.raises(OperatorError, match="no runner group 'new'"):
            await client.register("org:acme", "new", NAME, LABELS)
        world.clock.at += 10
    assert world.traffic.count("runner-groups") == 1
    world.administration.replace_groups(
        "acme", LabRunnerGroup("gpu", id=5), LabRunnerGroup("new", id=6)
    )
    world.clock.at += 11
    await client.register("org:acme", "new", NAME, LABELS)
    await client.register("org:acme", "gpu", RunnerName("r2"), LABELS)
    assert [runner.group_id for runner in world.github.runners] == [6, 5]
    assert world.traffic.count("runner-groups") == 2


def with_group(**group: Any) -> Callable[[Any], Any]:
    """Return a function that adds a runner group to a list of them."""
    return lambda page: (
        page | {"runner_groups": [*page["runner_groups"], page["runner_groups"][0] | group]}
    )


@pytest.mark.case(
    "two runner groups of one name, such as an organization's and its enterprise's",
    topic="GitHub's REST API",
    source="GitHub: runner groups in REST",
)
@pytest.mark.parametrize("name", ["gpu", "GPU"])
async def test_two_runner_groups_of_one_name_are_named_with_their_ids(
    world: World, client: GitHubClient, name: str
) -> None:
    extra = with_group(name=name.lower(), id=9, inherited=True)
    world.github.inject_faults(changed("runner-groups", extra))
    words = f"acme has 2 runner groups '{name}', with the ids 5 and 9 of the enterprise; rename"
    with pytest.raises(OperatorError, match=words):
        await client.register("org:acme", name, NAME, ("gpu",))
    with pytest.raises(OperatorError, match=words):
        await client.runner_group("org:acme", name)
    assert world.github.registered_ever == 0
    world.github.inject_faults()
    world.clock.at += 61
    await client.register("org:acme", name, NAME, ("gpu",))


async def test_of_groups_that_differ_in_case_only_the_exact_name_counts(
    world: World, client: GitHubClient
) -> None:
    world.github.inject_faults(changed("runner-groups", with_group(name="GPU", id=9)))
    await client.register("org:acme", "gpu", NAME, ("gpu",))
    with pytest.raises(OperatorError, match="2 runner groups 'Gpu', with the ids 5 and 9; rename"):
        await client.register("org:acme", "Gpu", NAME, ("gpu",))


@pytest.mark.case(
    "a repository is deleted or renamed, and GitHub answers 404: the message says so",
    topic="GitHub's REST API",
    source="GitHub: troubleshooting the REST API",
)
async def test_a_404_for_a_repository_names_it_and_what_may_be_the_cause(
    world: World, client: GitHubClient
) -> None:
    gone = "acme/widgets was deleted or renamed, or the App has no access to it"
    not_found = {"message": "Not Found"}
    requests: list[Callable[[], Awaitable[object]]] = [
        lambda: client.register("repo:acme/widgets", "Default", NAME, ("gpu",)),
        lambda: client.lists.runs("acme/widgets", "queued"),
        lambda: client.lists.newest_runs("acme/widgets"),
        lambda: client.lists.runners("repo:acme/widgets"),
    ]
    for ask in requests:
        world.github.inject_faults(fault("/repos/acme/widgets/actions", 404, not_found, times=9))
        with pytest.raises(OperatorError, match=f"404 Not Found; {gone}"):
            await ask()
    # One job or run that does not exist is no sign of it.
    assert await client.read_job("acme/widgets", JobId(7), START) is None
    world.administration.uninstall(1, "acme")
    async with world.client() as fresh:
        with pytest.raises(OperatorError, match="acme/lab; install one there, unless the repo"):
            await fresh.find_runner("repo:acme/lab", NAME)


async def test_groups_come_in_pages(world: World, client: GitHubClient) -> None:
    groups = [LabRunnerGroup(f"group-{n}", id=n) for n in range(2, 8)]
    world.administration.replace_groups("acme", *groups)
    world.administration.shape_lists(3)
    await client.register("org:acme", "group-7", NAME, LABELS)
    assert world.github.runners[0].group_id == 7
    assert world.traffic.count("runner-groups") == 3


@pytest.mark.case(
    "lists of runners have 100 entries a page, and can be filtered by name",
    topic="GitHub's REST API",
    source="GitHub: REST, self-hosted runners",
)
async def test_a_runner_is_found_by_its_exact_name_on_any_page(
    world: World, client: GitHubClient
) -> None:
    world.administration.shape_lists(2, filters_names=False)
    for n in range(5):
        await client.register("org:acme", "gpu", RunnerName(f"x-r{n}"), LABELS)
    registered = await client.register("org:acme", "gpu", RunnerName("x-r"), LABELS)
    world.github.push([job_spec()])
    await LabRunner(registered.jit_config).start()
    found = await client.find_runner("org:acme", RunnerName("x-r"))
    assert found == RegisteredRunner(6, RunnerName("x-r"), online=True, busy=True)
    assert await client.find_runner("org:acme", RunnerName("x-")) is None


@pytest.mark.case(
    "the deletion of a busy runner gets 422",
    topic="GitHub's REST API",
    source="ARC runner_graceful_stop.go",
)
async def test_deleting_a_runner_succeeds_finds_none_or_finds_it_busy(
    world: World, client: GitHubClient
) -> None:
    registered = await client.register("org:acme", "gpu", NAME, LABELS)
    world.github.push([job_spec()])
    await LabRunner(registered.jit_config).start()
    with pytest.raises(RunnerBusyError, match="still running a job"):
        await client.delete_runner("org:acme", registered.github_id)
    idle = await client.register("org:acme", "gpu", RunnerName("idle"), LABELS)
    assert await client.delete_runner("org:acme", idle.github_id) is True
    assert await client.delete_runner("org:acme", idle.github_id) is False


@pytest.mark.parametrize(
    "fault",
    [
        fault("DELETE", 502),
        fault("DELETE", 404, b"<html>no such page</html>", {"Content-Type": "text/html"}),
        fault("DELETE", 422, b""),
        fault("DELETE", 200, b"<html>who are you?</html>", {"Content-Type": "text/html"}),
        cut("DELETE"),
    ],
    ids=["502", "proxy's 404", "empty 422", "proxy's 200", "cut"],
)
async def test_a_delete_with_an_answer_that_is_not_githubs_is_retried_later(
    world: World, client: GitHubClient, fault: AnswerFault
) -> None:
    await client.register("org:acme", "gpu", NAME, LABELS)
    world.github.inject_faults(replace(fault, times=9))
    with pytest.raises(RetryLaterError):
        await client.delete_runner("org:acme", 1)


@pytest.mark.parametrize("scope", ["acme", "org:", "org:../x", "repo:acme", "repo:a/b/c", "x:y"])
async def test_a_malformed_scope_causes_no_request(
    world: World, client: GitHubClient, scope: str
) -> None:
    with pytest.raises(OperatorError, match="is not a "):
        await client.delete_runner(scope, 1)
    assert world.traffic.calls == []


async def test_every_call_is_counted_by_route_and_outcome(
    world: World, client: GitHubClient
) -> None:
    # aiohttp repeats a GET itself if a kept-alive connection breaks, so the fault happens twice.
    ask = "GET .*/actions/runners"
    world.github.inject_faults(fault(ask, 503), cut(ask, times=2))
    await client.register("org:acme", "gpu", NAME, LABELS)
    await client.find_runner("org:acme", NAME)
    await client.delete_runner("org:acme", 1)
    runners = "/orgs/{org}/actions/runners"
    counted: dict[tuple[str, str], Any] = {
        ("GET /orgs/{org}/installation", "200"): 1,
        ("POST /app/installations/{installation_id}/access_tokens", "201"): 1,
        ("GET /orgs/{org}/actions/runner-groups", "200"): 1,
        (f"POST {runners}/generate-jitconfig", "201"): 1,
        (f"GET {runners}", "200"): 1,
        (f"GET {runners}", "503"): 1,
        (f"GET {runners}", "disconnected"): 1,
        (f"DELETE {runners}/{{runner_id}}", "204"): 1,
    }
    assert dict(world.telemetry.calls) == counted


async def test_a_runner_group_is_read_with_its_selected_repositories(
    world: World, client: GitHubClient
) -> None:
    gpu = LabRunnerGroup("GPU", ("widgets", "lab", "old"), workflows=(WORKFLOW,), id=5)
    public = LabRunnerGroup("open", allows_public_repositories=True)
    world.administration.replace_groups("acme", gpu, public)
    world.administration.shape_lists(2)
    found = await client.runner_group("org:acme", "gpu")
    chosen = ("acme/lab", "acme/old", "acme/widgets")
    assert found == RunnerGroup("selected", False, True, chosen, (WORKFLOW,))
    assert await client.runner_group("org:acme", "Open") == RunnerGroup("all", True, False)
    with pytest.raises(OperatorError, match="no runner group"):
        await client.runner_group("org:acme", "none")
