"""Concurrent callers share one run of the work, even if some of them are cancelled."""

import asyncio

import pytest

from autoscaler.github.requests.single_flight import SingleFlight


class Work:
    """Counts its runs, and ends when `go` is set."""

    def __init__(self) -> None:
        self.runs = 0
        self.go = asyncio.Event()

    async def __call__(self) -> int:
        self.runs += 1
        number = self.runs
        await self.go.wait()
        return number


async def test_callers_during_a_run_share_it_and_a_later_caller_starts_a_new_one() -> None:
    flights: SingleFlight[int] = SingleFlight()
    work = Work()
    waiting = [asyncio.create_task(flights.run("k", work)) for _ in range(5)]
    other = asyncio.create_task(flights.run("other", work))
    await asyncio.sleep(0)
    work.go.set()
    assert await asyncio.gather(*waiting) == [1] * 5
    assert await other == 2
    assert await flights.run("k", work) == 3


async def test_a_cancelled_caller_does_not_cancel_the_shared_flight() -> None:
    flights: SingleFlight[int] = SingleFlight()
    work = Work()
    impatient = asyncio.create_task(flights.run("k", work))
    patient = asyncio.create_task(flights.run("k", work))
    await asyncio.sleep(0)
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    work.go.set()
    assert await patient == 1


async def test_closing_ends_the_work() -> None:
    flights: SingleFlight[int] = SingleFlight()
    waiting = asyncio.create_task(flights.run("k", Work()))
    await asyncio.sleep(0)
    await flights.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await flights.close()
