"""Rule 8 for errors that nobody listed: they become the port's own, are logged, and stop one thing.

What wraps an adapter here may raise only what its port says, so that a bug in one edge is retried
with the growing delay of an unknown outcome instead of ending the process.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import structlog

from autoscaler.controller.ports.github import (
    GitHub,
    GitHubError,
    MintedRunner,
    MintOutcomeUnknownError,
    Redelivered,
    RegisteredRunner,
    RetryLaterError,
)
from autoscaler.controller.ports.github_lists import (
    GitHubLists,
    ListedRepository,
    ListedRun,
    Listing,
)
from autoscaler.controller.ports.notices import Message, NoticeQueue
from autoscaler.controller.ports.prices import PriceReader
from autoscaler.controller.ports.provider import (
    LaunchAnswer,
    LaunchOrder,
    OutcomeUnknownError,
    ProofRefusedError,
    ProvenIdentity,
    Provider,
    ProviderError,
)
from autoscaler.controller.ports.reruns import RerunAnswer, Reruns
from autoscaler.model.access import RunnerGroup
from autoscaler.model.catalogue import CapacityType
from autoscaler.model.events import JobObserved, ListedMachine
from autoscaler.model.failures import FailureClass
from autoscaler.model.identifiers import (
    Instant,
    JobId,
    ProviderMachineId,
    ProviderName,
    RunnerName,
    Seconds,
    SkuName,
)
from autoscaler.model.prices import Price, PriceSource

T = TypeVar("T")
RETRY_AFTER: Seconds = 60.0

_log = structlog.get_logger(__name__)


class GuardedProvider:
    """A Provider that raises only what the port names."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    @property
    def name(self) -> ProviderName:
        """See `Provider`."""
        return self._provider.name

    async def prepare(self, order: LaunchOrder) -> str:
        """See `Provider`. Preparing launches nothing, so its failure is a plain one."""
        return await _guard(lambda: self._provider.prepare(order), _LISTED, _refused)

    async def launch(self, request: str) -> LaunchAnswer:
        """See `Provider`."""
        return await _guard(lambda: self._provider.launch(request), _LISTED, OutcomeUnknownError)

    async def end(self, machines: Sequence[ProviderMachineId]) -> dict[ProviderMachineId, str]:
        """See `Provider`."""
        return await _guard(lambda: self._provider.end(machines), _LISTED, OutcomeUnknownError)

    async def machines(self) -> AsyncIterator[tuple[ListedMachine, ...]]:
        """See `Provider`."""
        pages = aiter(self._provider.machines())
        while True:
            page = await _guard(lambda: anext(pages, None), _LISTED, OutcomeUnknownError)
            if page is None:
                return
            yield page

    async def quotas(self) -> Mapping[str, int]:
        """See `Provider`."""
        return await _guard(self._provider.quotas, _LISTED, OutcomeUnknownError)

    async def collect(self, requests: Sequence[str]) -> tuple[str, ...]:
        """See `Provider`."""
        return await _guard(lambda: self._provider.collect(requests), _LISTED, OutcomeUnknownError)

    async def image(self, sku: SkuName) -> str:
        """See `Provider`."""
        return await _guard(lambda: self._provider.image(sku), _LISTED, OutcomeUnknownError)

    async def console(self, machine: ProviderMachineId) -> str:
        """See `Provider`."""
        return await _guard(lambda: self._provider.console(machine), _LISTED, OutcomeUnknownError)

    def verify(self, proof: bytes) -> ProvenIdentity:
        """See `Provider`."""
        try:
            return self._provider.verify(proof)
        except ProofRefusedError:
            raise
        except Exception as error:
            raise ProofRefusedError("malformed", _told(error)) from error

    async def close(self) -> None:
        """See `Provider`."""
        await self._provider.close()


class GuardedGitHub:
    """A GitHub that raises only what the port names."""

    def __init__(self, github: GitHub) -> None:
        self._github = github

    async def mint(
        self, scope: str, runner_group: str, name: RunnerName, labels: tuple[str, ...]
    ) -> MintedRunner:
        """See `GitHub`."""
        return await _guard(
            lambda: self._github.mint(scope, runner_group, name, labels),
            GitHubError,
            MintOutcomeUnknownError,
        )

    async def find_runner(self, scope: str, name: RunnerName) -> RegisteredRunner | None:
        """See `GitHub`."""
        return await _guard(lambda: self._github.find_runner(scope, name), GitHubError, _later)

    async def read_runner(self, scope: str, github_id: int) -> RegisteredRunner | None:
        """See `GitHub`."""
        return await _guard(lambda: self._github.read_runner(scope, github_id), GitHubError, _later)

    async def delete_runner(self, scope: str, github_id: int) -> bool:
        """See `GitHub`."""
        return await _guard(
            lambda: self._github.delete_runner(scope, github_id), GitHubError, _later
        )

    async def read_job(self, repository: str, job: JobId, now: Instant) -> JobObserved | None:
        """See `GitHub`."""
        return await _guard(
            lambda: self._github.read_job(repository, job, now), GitHubError, _later
        )

    async def run_from_fork(self, repository: str, run_id: int) -> bool | None:
        """See `GitHub`."""
        return await _guard(
            lambda: self._github.run_from_fork(repository, run_id), GitHubError, _later
        )

    async def runner_group(self, scope: str, name: str) -> RunnerGroup:
        """See `GitHub`."""
        return await _guard(lambda: self._github.runner_group(scope, name), GitHubError, _later)

    async def redeliver_failed(self, since: Instant) -> Redelivered:
        """See `GitHub`."""
        return await _guard(lambda: self._github.redeliver_failed(since), GitHubError, _later)

    async def close(self) -> None:
        """See `GitHub`."""
        await self._github.close()


class GuardedGitHubLists:
    """GitHubLists that raise only what the port names."""

    def __init__(self, lists: GitHubLists) -> None:
        self._lists = lists

    async def repositories(self, scope: str) -> Listing[ListedRepository]:
        """See `GitHubLists`."""
        return await _guard(lambda: self._lists.repositories(scope), GitHubError, _later)

    async def newest_repositories(self, scope: str) -> Listing[ListedRepository]:
        """See `GitHubLists`."""
        return await _guard(lambda: self._lists.newest_repositories(scope), GitHubError, _later)

    async def newest_runs(self, repository: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        return await _guard(lambda: self._lists.newest_runs(repository), GitHubError, _later)

    async def runs(self, repository: str, status: str) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        return await _guard(lambda: self._lists.runs(repository, status), GitHubError, _later)

    async def run(self, repository: str, run_id: int) -> Listing[ListedRun]:
        """See `GitHubLists`."""
        return await _guard(lambda: self._lists.run(repository, run_id), GitHubError, _later)

    async def jobs(self, repository: str, run_id: int, now: Instant) -> Listing[JobObserved]:
        """See `GitHubLists`."""
        return await _guard(lambda: self._lists.jobs(repository, run_id, now), GitHubError, _later)

    async def runners(self, scope: str) -> Listing[RegisteredRunner]:
        """See `GitHubLists`."""
        return await _guard(lambda: self._lists.runners(scope), GitHubError, _later)

    def pace(self, scope: str) -> float:
        """See `GitHubLists`."""
        return self._lists.pace(scope)


class GuardedReruns:
    """Reruns that raise only what the port names."""

    def __init__(self, reruns: Reruns) -> None:
        self._reruns = reruns

    async def rerun(
        self, repository: str, run_id: int, run_attempt: int, jobs: Sequence[JobId]
    ) -> RerunAnswer:
        """See `Reruns`."""
        return await _guard(
            lambda: self._reruns.rerun(repository, run_id, run_attempt, jobs), GitHubError, _later
        )


class GuardedNotices:
    """A NoticeQueue that raises only what the port names."""

    def __init__(self, queue: NoticeQueue) -> None:
        self._queue = queue

    async def receive(self, wait: Seconds) -> tuple[Message, ...]:
        """See `NoticeQueue`."""
        return await _guard(lambda: self._queue.receive(wait), _LISTED, OutcomeUnknownError)

    async def settle(self, receipts: Sequence[str]) -> None:
        """See `NoticeQueue`."""
        await _guard(lambda: self._queue.settle(receipts), _LISTED, OutcomeUnknownError)

    async def shown(self, machines: Sequence[ProviderMachineId]) -> tuple[ListedMachine, ...]:
        """See `NoticeQueue`."""
        return await _guard(lambda: self._queue.shown(machines), _LISTED, OutcomeUnknownError)


class GuardedPrices:
    """A PriceReader that raises only what the port names."""

    def __init__(self, reader: PriceReader) -> None:
        self._reader = reader

    @property
    def price_kinds(self) -> Collection[CapacityType]:
        """See `PriceReader`."""
        return self._reader.price_kinds

    async def read_prices(self, capacity_type: CapacityType) -> tuple[Price, ...]:
        """See `PriceReader`."""
        return await _guard(
            lambda: self._reader.read_prices(capacity_type), _LISTED, OutcomeUnknownError
        )

    def use_prices(self, prices: Sequence[Price], source: PriceSource) -> bool:
        """See `PriceReader`."""
        return self._reader.use_prices(prices, source)

    def price_sources(self, capacity_type: CapacityType) -> Mapping[PriceSource, int]:
        """See `PriceReader`."""
        return self._reader.price_sources(capacity_type)

    def spot_prices(self) -> tuple[Price, ...]:
        """See `PriceReader`."""
        return self._reader.spot_prices()


_LISTED = (ProviderError, OutcomeUnknownError)


async def _guard(
    call: Callable[[], Awaitable[T]],
    listed: type[Exception] | tuple[type[Exception], ...],
    instead: Callable[[str], Exception],
) -> T:
    try:
        return await call()
    except listed:
        raise
    except Exception as error:
        raise instead(_told(error)) from error


def _told(error: Exception) -> str:
    _log.error("unlisted_error", error=type(error).__name__, exc_info=error)
    return f"{type(error).__name__}: {error}"[:300]


def _refused(message: str) -> ProviderError:
    return ProviderError(FailureClass.UNKNOWN, "Unlisted", message)


def _later(message: str) -> RetryLaterError:
    return RetryLaterError(message, RETRY_AFTER)
