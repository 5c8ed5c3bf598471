"""Rule 8: an unlisted error becomes an error of the port, and affects one call only."""

from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import pytest

from autoscaler.controller.guarded_github import (
    RETRY_AFTER,
    GuardedGitHub,
    GuardedGitHubLists,
    GuardedReruns,
)
from autoscaler.controller.guarded_providers import GuardedNotices, GuardedPrices, GuardedProvider
from autoscaler.controller.ports.github import (
    GitHubError,
    OperatorError,
    RegistrationOutcomeUnknownError,
    RetryLaterError,
)
from autoscaler.controller.ports.provider import (
    OutcomeUnknownError,
    ProofRefusedError,
    ProviderError,
)
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import (
    JobId,
    LaunchRequestId,
    ProviderMachineId,
    RunnerName,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from tests.controller.fakes_github import ScriptedGitHub
from tests.controller.fakes_lists import FakeLists
from tests.controller.fakes_provider import FakeProvider


class BrokenProvider(FakeProvider):
    """Every call raises an error that no port lists."""

    error: Exception = TypeError("a bug")

    async def open(self) -> NoReturn:
        raise self.error

    async def prepare(self, order: object) -> NoReturn:
        raise self.error

    async def launch(self, request: str) -> NoReturn:
        raise self.error

    async def terminate(self, machines: object) -> NoReturn:
        raise self.error

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        yield ()
        raise self.error

    async def quotas(self) -> NoReturn:
        raise self.error

    async def delete_unused(self, requests: object) -> NoReturn:
        raise self.error

    async def console(self, machine: object) -> NoReturn:
        raise self.error

    async def verify(self, proof: bytes) -> NoReturn:
        raise self.error

    async def protect(self, machine: object) -> NoReturn:
        raise self.error


LISTED = ListedMachine(
    ProviderMachineId("i-1"),
    "0badcafe",
    LaunchRequestId("c"),
    SkuName("gpu"),
    False,
    "g5.xlarge",
    "a",
    CapacityType.ON_DEMAND,
    1.0,
    (),
    "ami-1",
    "t0",
    "",
    None,
)


class BrokenGitHub(ScriptedGitHub):
    """Every call raises an error that no port lists."""

    async def _answer(self, method: str, carry_out: object, lost: object) -> NoReturn:
        raise KeyError(method)


async def test_an_empty_page_is_passed_on_and_ends_no_list() -> None:
    class Gapped(FakeProvider):
        async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
            yield ()
            yield (LISTED,)

    assert [page async for page in GuardedProvider(Gapped()).machines()] == [(), (LISTED,)]


async def test_an_unlisted_error_before_the_first_page_is_an_unknown_outcome() -> None:
    """`machines` need not be a generator, and then it can fail before it returns one."""

    class Hasty(FakeProvider):
        def machines(self) -> NoReturn:
            raise KeyError("no cloud")

    with pytest.raises(OutcomeUnknownError, match="KeyError: 'no cloud'"):
        await read_all(GuardedProvider(Hasty()))


async def test_a_provider_that_replaces_another_one_while_it_opens_is_opened_too() -> None:
    """A reload may come while a provider opens. Else it would have no offerings until it is read again."""
    opened: list[str] = []

    class Second(FakeProvider):
        async def open(self) -> None:
            opened.append("second")

    class First(FakeProvider):
        async def open(self) -> None:
            guarded.use(Second())
            opened.append("first")

    guarded = GuardedProvider(First())
    await guarded.open()
    assert opened == ["first", "second"]


async def read_all(provider: GuardedProvider) -> None:
    async for _ in provider.machines():
        pass


@pytest.mark.parametrize(
    "call",
    [
        lambda p: p.open(),
        lambda p: p.launch("{}"),
        lambda p: p.terminate([]),
        read_all,
        lambda p: p.quotas(),
        lambda p: p.delete_unused([]),
        lambda p: p.console("i-1"),
        lambda p: p.protect("i-1"),
    ],
    ids=[
        "open",
        "launch",
        "terminate",
        "machines",
        "quotas",
        "delete_unused",
        "console",
        "protect",
    ],
)
async def test_an_unlisted_error_of_a_provider_is_an_unknown_outcome(
    call: Callable[[GuardedProvider], Awaitable[object]],
) -> None:
    with pytest.raises(OutcomeUnknownError, match="TypeError: a bug"):
        await call(GuardedProvider(BrokenProvider()))


async def test_an_unlisted_error_in_prepare_is_a_provider_error() -> None:
    with pytest.raises(ProviderError) as caught:
        await GuardedProvider(BrokenProvider()).prepare(None)  # type: ignore[arg-type]
    assert caught.value.failure is FailureClass.UNKNOWN


async def test_an_unlisted_error_in_verify_refuses_the_proof() -> None:
    with pytest.raises(ProofRefusedError) as caught:
        await GuardedProvider(BrokenProvider()).verify(b"x")
    assert caught.value.reason == "malformed"


async def test_errors_of_the_port_pass_the_guard_unchanged() -> None:
    broken = BrokenProvider()
    broken.error = ProviderError(FailureClass.QUOTA, "Vcpu", "no more")
    with pytest.raises(ProviderError) as caught:
        await GuardedProvider(broken).launch("{}")
    assert caught.value is broken.error
    github = ScriptedGitHub()
    github.script("register", OperatorError("403"))
    with pytest.raises(OperatorError):
        await GuardedGitHub(github).register("org:acme", "g", RunnerName("r"), ("gpu",))


async def test_an_unlisted_error_in_register_may_have_registered_a_runner() -> None:
    with pytest.raises(RegistrationOutcomeUnknownError):
        await GuardedGitHub(BrokenGitHub()).register("org:acme", "g", RunnerName("r"), ("gpu",))


@pytest.mark.case(
    "one stuck deletion blocks everything",
    topic="Complaints about other fleets",
    source="GARM#854",
)
@pytest.mark.parametrize(
    "call",
    [
        lambda g: g.find_runner("org:acme", RunnerName("r")),
        lambda g: g.read_runner("org:acme", 1),
        lambda g: g.delete_runner("org:acme", 1),
        lambda g: g.read_job("acme/widgets", JobId(1), 0.0),
        lambda g: g.run_origin("acme/widgets", 7),
        lambda g: g.runner_group("org:acme", "gpu"),
        lambda g: g.redeliver_failed(0.0),
    ],
    ids=[
        "find_runner",
        "read_runner",
        "delete_runner",
        "read_job",
        "run_origin",
        "runner_group",
        "redeliver_failed",
    ],
)
async def test_any_other_unlisted_error_of_github_is_retried_later(
    call: Callable[[GuardedGitHub], Awaitable[object]],
) -> None:
    with pytest.raises(GitHubError) as caught:
        await call(GuardedGitHub(BrokenGitHub()))
    assert isinstance(caught.value, RetryLaterError)


@pytest.mark.parametrize(
    "call",
    [
        lambda lists: lists.repositories("org:acme"),
        lambda lists: lists.newest_repositories("org:acme"),
        lambda lists: lists.newest_runs("acme/widgets"),
        lambda lists: lists.runs("acme/widgets", "queued"),
        lambda lists: lists.run("acme/widgets", 7),
        lambda lists: lists.jobs("acme/widgets", 7, 0.0),
        lambda lists: lists.runners("org:acme"),
        lambda lists: lists.runner_version_end("org:acme", "2.338.0"),
    ],
    ids=[
        "repositories",
        "newest_repositories",
        "newest_runs",
        "runs",
        "run",
        "jobs",
        "runners",
        "runner_version_end",
    ],
)
async def test_an_unlisted_error_in_reading_a_list_affects_only_that_read(
    call: Callable[[GuardedGitHubLists], Awaitable[object]],
) -> None:
    lists = FakeLists(lambda: 0.0, latency=0.0)
    lists.broken = defaultdict(lambda: ZeroDivisionError("a bug"))
    with pytest.raises(RetryLaterError):
        await call(GuardedGitHubLists(lists))
    lists.broken = defaultdict(lambda: OperatorError("403"))
    with pytest.raises(OperatorError):
        await call(GuardedGitHubLists(lists))
    assert GuardedGitHubLists(lists).pace("org:acme") == lists.pace("org:acme")


class Recorder:
    """Stands in for any port: keeps each call, and answers it or raises `error`."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def called(*arguments: object) -> object:
            self.calls.append((name, arguments))
            if self.error is not None:
                raise self.error
            return f"answer of {name}"

        return called


METHODS: list[tuple[Any, str, int, type[Exception]]] = [
    (GuardedGitHub, "register", 4, RegistrationOutcomeUnknownError),
    (GuardedGitHub, "find_runner", 2, RetryLaterError),
    (GuardedGitHub, "read_runner", 2, RetryLaterError),
    (GuardedGitHub, "delete_runner", 2, RetryLaterError),
    (GuardedGitHub, "read_job", 3, RetryLaterError),
    (GuardedGitHub, "run_origin", 2, RetryLaterError),
    (GuardedGitHub, "runner_group", 2, RetryLaterError),
    (GuardedGitHub, "redeliver_failed", 1, RetryLaterError),
    (GuardedGitHubLists, "repositories", 1, RetryLaterError),
    (GuardedGitHubLists, "newest_repositories", 1, RetryLaterError),
    (GuardedGitHubLists, "newest_runs", 1, RetryLaterError),
    (GuardedGitHubLists, "runs", 2, RetryLaterError),
    (GuardedGitHubLists, "run", 2, RetryLaterError),
    (GuardedGitHubLists, "jobs", 3, RetryLaterError),
    (GuardedGitHubLists, "runners", 1, RetryLaterError),
    (GuardedGitHubLists, "runner_version_end", 2, RetryLaterError),
    (GuardedReruns, "rerun", 4, RetryLaterError),
    (GuardedProvider, "prepare", 1, ProviderError),
    (GuardedProvider, "launch", 1, OutcomeUnknownError),
    (GuardedProvider, "terminate", 1, OutcomeUnknownError),
    (GuardedProvider, "quotas", 0, OutcomeUnknownError),
    (GuardedProvider, "delete_unused", 1, OutcomeUnknownError),
    (GuardedProvider, "image", 1, OutcomeUnknownError),
    (GuardedProvider, "console", 1, OutcomeUnknownError),
    (GuardedProvider, "protect", 1, OutcomeUnknownError),
    (GuardedNotices, "receive", 1, OutcomeUnknownError),
    (GuardedNotices, "settle", 1, OutcomeUnknownError),
    (GuardedNotices, "shown", 1, OutcomeUnknownError),
]


@pytest.mark.parametrize(
    ("guarded", "method", "count", "instead"), METHODS, ids=[one[1] for one in METHODS]
)
async def test_a_guard_passes_on_arguments_and_answers_and_names_an_unlisted_error(
    guarded: Any, method: str, count: int, instead: type[Exception]
) -> None:
    port, arguments = Recorder(), tuple(object() for _ in range(count))
    answer = await getattr(guarded(port), method)(*arguments)
    assert port.calls == [(method, arguments)]
    assert answer == (None if method in ("settle", "protect") else f"answer of {method}")
    port.error = ZeroDivisionError("a bug")
    with pytest.raises(instead) as caught:
        await getattr(guarded(port), method)(*arguments)
    assert type(caught.value) is instead
    assert "ZeroDivisionError: a bug" in str(caught.value)
    if isinstance(caught.value, RetryLaterError):
        assert caught.value.retry_after == RETRY_AFTER


async def test_the_guard_of_prices_passes_on_the_kind_and_the_answer() -> None:
    port = Recorder()
    assert await GuardedPrices(port).read_prices(CapacityType.SPOT) == "answer of read_prices"  # type: ignore[arg-type, comparison-overlap]
    assert port.calls == [("read_prices", (CapacityType.SPOT,))]


async def test_an_unlisted_error_in_reading_prices_is_the_problem_of_the_answer() -> None:
    port = Recorder()
    port.error = ZeroDivisionError("a bug")
    answer = await GuardedPrices(port).read_prices(CapacityType.SPOT)  # type: ignore[arg-type]
    assert answer.prices == ()
    assert isinstance(answer.problem, OutcomeUnknownError)
    assert "ZeroDivisionError: a bug" in str(answer.problem)
