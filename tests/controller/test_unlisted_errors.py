"""Rule 8: an unlisted error becomes an error of the port, and affects one call only."""

import asyncio
import inspect
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, NoReturn

import pytest

from autoscaler.controller.ports.capabilities import NoticeQueue, PriceReader
from autoscaler.controller.ports.github import (
    RETRY_UNLISTED,
    GitHub,
    GitHubError,
    OperatorError,
    RegistrationOutcomeUnknownError,
    Reruns,
    RetryLaterError,
    github_errors,
)
from autoscaler.controller.ports.github_lists import GitHubLists
from autoscaler.controller.ports.provider import (
    OutcomeUnknownError,
    ProofRefusedError,
    Provider,
    ProviderError,
    provider_errors,
)
from autoscaler.github.client import GitHubClient
from autoscaler.github.lists.reader import Lists
from autoscaler.github.reruns import JobReruns
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
from autoscaler.providers.ec2.notices.queue import Ec2NoticeQueue
from autoscaler.providers.ec2.prices.price_book import Ec2Prices
from autoscaler.providers.ec2.provider import Ec2Provider
from autoscaler.providers.kubernetes.notices.queue import PodNotices
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from tests.controller.controllers import Controller, World, cancelled
from tests.controller.fakes_github import ScriptedGitHub
from tests.controller.fakes_lists import FakeLists
from tests.controller.fakes_provider import FakeProvider
from tests.controller.virtual_time import on_virtual_time
from tests.planner.fleets import EAST


@provider_errors
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

    async def image(self, sku: object) -> NoReturn:
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


@github_errors
class BrokenGitHub(ScriptedGitHub):
    """Every call raises an error that no port lists."""

    error: Exception = KeyError("a bug")

    async def register(self, *_: object) -> NoReturn:
        raise self.error

    async def find_runner(self, *_: object) -> NoReturn:
        raise self.error

    async def read_runner(self, *_: object) -> NoReturn:
        raise self.error

    async def delete_runner(self, *_: object) -> NoReturn:
        raise self.error

    async def read_job(self, *_: object) -> NoReturn:
        raise self.error

    async def run_origin(self, *_: object) -> NoReturn:
        raise self.error

    async def runner_group(self, *_: object) -> NoReturn:
        raise self.error

    async def redeliver_failed(self, *_: object) -> NoReturn:
        raise self.error


async def test_an_empty_page_is_passed_on_and_ends_no_list() -> None:
    @provider_errors
    class Gapped(FakeProvider):
        async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
            yield ()
            yield (LISTED,)

    assert [page async for page in Gapped().machines()] == [(), (LISTED,)]


async def test_an_unlisted_error_before_the_first_page_is_an_unknown_outcome() -> None:
    @provider_errors
    class Hasty(FakeProvider):
        async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
            yield (self.no_cloud(),)

        def no_cloud(self) -> NoReturn:
            raise KeyError("no cloud")

    with pytest.raises(OutcomeUnknownError, match="KeyError: 'no cloud'"):
        await read_all(Hasty())


@on_virtual_time
async def test_a_provider_that_replaces_another_one_while_it_opens_is_opened_too() -> None:
    """A reload may come while a provider opens. Else it would have no offerings until it is read again."""
    opened: list[str] = []
    world = World()

    class Second(FakeProvider):
        async def open(self) -> None:
            opened.append("second")

    class First(FakeProvider):
        async def open(self) -> None:
            world.providers[EAST] = Second()
            opened.append("first")

    world.providers[EAST] = First()
    controller = Controller(world)
    controller.parts.provider_opener.opened.clear()
    await controller.resume()
    opening = asyncio.create_task(controller.run_tasks())
    await asyncio.sleep(5.0)
    await cancelled(opening)
    assert opened == ["first", "second"]


async def read_all(provider: Provider) -> None:
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
        lambda p: p.image("gpu"),
        lambda p: p.console("i-1"),
        lambda p: p.capabilities.protect("i-1"),
    ],
    ids=[
        "open",
        "launch",
        "terminate",
        "machines",
        "quotas",
        "delete_unused",
        "image",
        "console",
        "protect",
    ],
)
async def test_an_unlisted_error_of_a_provider_is_an_unknown_outcome(
    call: Callable[[Provider], Awaitable[object]],
) -> None:
    with pytest.raises(OutcomeUnknownError, match="TypeError: a bug"):
        await call(BrokenProvider())


async def test_an_unlisted_error_in_prepare_is_a_provider_error() -> None:
    with pytest.raises(ProviderError) as caught:
        await BrokenProvider().prepare(None)
    assert caught.value.failure is FailureClass.UNKNOWN


async def test_an_unlisted_error_in_verify_refuses_the_proof() -> None:
    with pytest.raises(ProofRefusedError) as caught:
        await BrokenProvider().verify(b"x")
    assert caught.value.reason == "malformed"


async def test_errors_of_the_port_pass_unchanged() -> None:
    broken = BrokenProvider()
    broken.error = ProviderError(FailureClass.QUOTA, "Vcpu", "no more")
    with pytest.raises(ProviderError) as caught:
        await broken.launch("{}")
    assert caught.value is broken.error
    github = BrokenGitHub()
    github.error = OperatorError("403")
    with pytest.raises(OperatorError):
        await github.register("org:acme", "g", RunnerName("r"), ("gpu",))


async def test_an_unlisted_error_in_register_may_have_registered_a_runner() -> None:
    with pytest.raises(RegistrationOutcomeUnknownError):
        await BrokenGitHub().register("org:acme", "g", RunnerName("r"), ("gpu",))


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
    call: Callable[[GitHub], Awaitable[object]],
) -> None:
    with pytest.raises(GitHubError) as caught:
        await call(BrokenGitHub())
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
    call: Callable[[GitHubLists], Awaitable[object]],
) -> None:
    @github_errors
    class Fake(FakeLists):
        repositories = FakeLists.repositories
        newest_repositories = FakeLists.newest_repositories
        newest_runs = FakeLists.newest_runs
        runs = FakeLists.runs
        run = FakeLists.run
        jobs = FakeLists.jobs
        runners = FakeLists.runners
        runner_version_end = FakeLists.runner_version_end

    lists = Fake(lambda: 0.0, latency=0.0)
    lists.broken = defaultdict(lambda: ZeroDivisionError("a bug"))
    with pytest.raises(RetryLaterError):
        await call(lists)
    lists.broken = defaultdict(lambda: OperatorError("403"))
    with pytest.raises(OperatorError):
        await call(lists)
    assert not hasattr(Fake.pace, "__wrapped__")


ADAPTERS: list[tuple[type, type]] = [
    (GitHubClient, GitHub),
    (Lists, GitHubLists),
    (JobReruns, Reruns),
    (Ec2Provider, Provider),
    (Ec2NoticeQueue, NoticeQueue),
    (Ec2Prices, PriceReader),
    (KubernetesProvider, Provider),
    (PodNotices, NoticeQueue),
]


def asynchronous(port: type) -> list[str]:
    """Return the names of the methods of a port that a caller waits for."""
    of_port = vars(port).items()
    pages = ["machines"] if port is Provider else []
    return [name for name, one in of_port if inspect.iscoroutinefunction(one)] + pages


METHODS = [(one, name) for one, port in ADAPTERS for name in asynchronous(port)]


def test_every_asynchronous_method_of_an_adapter_is_translated() -> None:
    assert len(METHODS) > 40
    assert [
        (one, name) for one, name in METHODS if not hasattr(vars(one)[name], "__wrapped__")
    ] == []
    assert hasattr(KubernetesProvider.protect, "__wrapped__")


def raising(names: Collection[str], decorate: Callable[[type], type]) -> Any:
    """Return an adapter whose methods of these names answer, or raise its `error`."""

    def method(name: str) -> Callable[..., Awaitable[object]]:
        async def called(self: Any, *arguments: object) -> object:
            if self.error is not None:
                raise self.error
            return name, arguments

        return called

    adapter = type("Adapter", (), {"error": None} | {name: method(name) for name in names})
    return decorate(adapter)()


INSTEAD: list[tuple[Callable[[type], type], str, type[Exception]]] = [
    *(
        (github_errors, name, RetryLaterError)
        for name in asynchronous(GitHub)
        if name != "register"
    ),
    *((github_errors, name, RetryLaterError) for name in asynchronous(GitHubLists)),
    (github_errors, "rerun", RetryLaterError),
    (github_errors, "register", RegistrationOutcomeUnknownError),
    (provider_errors, "prepare", ProviderError),
    (provider_errors, "verify", ProofRefusedError),
    *((provider_errors, name, OutcomeUnknownError) for name in asynchronous(NoticeQueue)),
    *((provider_errors, name, OutcomeUnknownError) for name in asynchronous(PriceReader)),
    *(
        (provider_errors, name, OutcomeUnknownError)
        for name in asynchronous(Provider)
        if name not in ("prepare", "verify", "machines")
    ),
]


@pytest.mark.parametrize(
    ("decorate", "method", "instead"), INSTEAD, ids=[one[1] for one in INSTEAD]
)
async def test_a_method_passes_on_arguments_and_answers_and_names_an_unlisted_error(
    decorate: Callable[[type], type], method: str, instead: type[Exception]
) -> None:
    adapter, arguments = raising([method], decorate), (object(), object())
    assert await getattr(adapter, method)(*arguments) == (method, arguments)
    adapter.error = ZeroDivisionError("a bug")
    with pytest.raises(instead) as caught:
        await getattr(adapter, method)(*arguments)
    assert type(caught.value) is instead
    assert "ZeroDivisionError: a bug" in str(caught.value)
    if isinstance(caught.value, RetryLaterError):
        assert caught.value.retry_after == RETRY_UNLISTED
