"""A pytest plugin: no phase of a test waits without a limit, and no process outlives its test.

`wait_limit` (seconds) is the limit of the setup, the call and the teardown of each test, of the collection and
of the end of the session. tests/watchdog/clock.py says which seconds count. After the limit, the plugin kills
the processes that the test started and interrupts the main thread, and the test fails with a report. If it
still does not end within `wait_grace` seconds, the plugin writes the report to stderr and ends pytest with
status 3.
"""

import inspect
import os
import sys
import time
from collections.abc import Callable, Collection, Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.watchdog.children import (
    adopt_orphans,
    children,
    command,
    describe,
    end,
    forget_ended,
    is_running,
    note_started,
    strays,
)
from tests.watchdog.report import ended_processes
from tests.watchdog.watch import Phase, WaitedTooLongError, Watch

_RUN = pytest.StashKey["Run"]()
_ENDED = pytest.StashKey[dict[int, str]]()
_BEFORE = pytest.StashKey[frozenset[int]]()
_WIDEST = ("session", "package", "module", "class")
"""The scopes of fixtures that tests share, the widest first."""


class Run:
    """What the plugin knows of this run of pytest."""

    def __init__(self, config: pytest.Config) -> None:
        self.limit = float(config.getini("wait_limit"))
        self.grace = float(config.getini("wait_grace"))
        self._outside = children()
        self.shared: dict[int, tuple[str, str]] = {}
        """The scope of the fixture and the command of a process, for fixtures that tests share."""
        # Pytest captures the file descriptor 2 later.
        self.watch = Watch(self.grace, os.dup(2), self._kept)

    def begin(self, name: str, spared: Collection[int] = (), limit: float | None = None) -> Phase:
        """Watch a phase, which may also start processes of shared fixtures."""
        return self.watch.begin(
            Phase(name, limit or self.limit, lambda: self._kept().union(spared))
        )

    def begin_end(self, name: str, item: pytest.Item, following: pytest.Item | None) -> Phase:
        """Watch a teardown. It owns the processes of all fixtures that it tears down."""
        kept = partial(self._kept_after, item, following)
        return self.watch.begin(Phase(name, self.limit_of(item), kept))

    def limit_of(self, item: pytest.Item) -> float:
        """Return the limit of each phase of a test."""
        marker = item.get_closest_marker("wait_limit")
        return self.limit if marker is None else float(marker.kwargs["seconds"])

    def share(self, item: pytest.Item) -> None:
        """Attribute what a test started to a fixture that it shares, which may have started it later."""
        info = getattr(item, "_fixtureinfo", None)
        found = {
            one.scope
            for defined in ([] if info is None else info.name2fixturedefs.values())
            for one in defined
            # Those of plugins have no place. Only a generator ends what it started.
            if one.baseid and _is_generator(one.func)
        }
        before = item.stash[_BEFORE]
        widest = next((scope for scope in _WIDEST if scope in found), None)
        if widest is not None:
            for pid in children() - before:
                self.shared.setdefault(pid, (widest, command(pid)))

    def left(self, spared: Collection[int], patience: float) -> str:
        """Describe the processes that were left and do not end in `patience` seconds, and kill them."""
        found, until = strays(spared), time.monotonic() + patience
        while found and time.monotonic() < until:
            # A process that got a signal may need a moment.
            time.sleep(0.01)
            found = strays(spared)
        described = describe(found)
        end(found, self.grace)
        present = children()
        self.shared = {pid: one for pid, one in self.shared.items() if pid in present}
        return described

    def _kept(self) -> frozenset[int]:
        return self._outside.union(self.shared)

    def _kept_after(self, item: pytest.Item, following: pytest.Item | None) -> frozenset[int]:
        scopes: tuple[str, ...] = () if following is None else ("session",)
        if following is not None and following.path == item.path:
            scopes = _WIDEST
        return self._outside.union(
            pid for pid, (scope, _) in self.shared.items() if scope in scopes
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("wait_limit", "Seconds that a phase of a test may take.", default=str(PATIENCE))
    parser.addini("wait_grace", "Seconds that it has to end after the limit.", default="30")


def pytest_configure(config: pytest.Config) -> None:
    # mutmut waits for any child of its own, and would take the orphan of a mutant that timed out for one.
    if "MUTANT_UNDER_TEST" not in os.environ:
        adopt_orphans()
    note_started()
    config.stash[_RUN] = Run(config)
    config.stash[_RUN].begin("the collection")


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[_RUN].watch.end()


def pytest_enter_pdb(config: pytest.Config) -> None:
    config.stash[_RUN].watch.close()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Note which processes belong to a shared fixture."""
    if fixturedef.scope == "function":
        return (yield)
    before = children()
    try:
        return (yield)
    finally:
        for pid in filter(is_running, children() - before):
            request.config.stash[_RUN].shared.setdefault(pid, (fixturedef.scope, command(pid)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    __tracebackhide__ = True
    item.stash[_BEFORE] = children()
    return (yield from _within_limit(item, "setup"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    __tracebackhide__ = True
    return (yield from _within_limit(item, "call"))


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Note which programs have ended: asyncio drops its object of a process soon after that has ended."""
    __tracebackhide__ = True
    try:
        return (yield)
    except BaseException:
        pyfuncitem.stash[_ENDED] = ended_processes()
        raise
    finally:
        forget_ended()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, Any, Any]:
    run = item.config.stash[_RUN]
    phase = run.begin_end(f"{item.nodeid} [teardown]", item, nextitem)
    try:
        result = yield from _failing(run, phase)
    except BaseException:
        run.left(phase.spared(), 0.0)
        raise
    run.share(item)
    if left := run.left(phase.spared(), run.grace):
        pytest.fail(f"{item.nodeid} left processes, which are killed now:\n{left}", pytrace=False)
    return result


def _is_generator(function: Callable[..., Any]) -> bool:
    plain = inspect.unwrap(function)
    return inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)


def _within_limit(item: pytest.Item, name: str) -> Generator[None, Any, Any]:
    __tracebackhide__ = True
    run = item.config.stash[_RUN]
    before = item.stash[_BEFORE]
    phase = run.begin(f"{item.nodeid} [{name}]", before, run.limit_of(item))
    return (yield from _failing(run, phase))


def _failing(run: Run, phase: Phase) -> Generator[None, Any, Any]:
    """Fail with the phase's report if it has one."""
    __tracebackhide__ = True
    result, failure = None, ""
    try:
        result = yield
    except BaseException as error:
        if not phase.report:
            raise
        if not isinstance(error, WaitedTooLongError):
            failure = f"\nIt then failed: {error!r:.3000}"
    finally:
        run.watch.end()
    if phase.report:
        pytest.fail(phase.report + failure, pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say in the report of a failed test which programs had ended: the test may have waited for one."""
    report = yield
    if report.failed:
        ended = item.stash.get(_ENDED, {}) | ended_processes()
        for pid, (scope, words) in item.config.stash[_RUN].shared.items():
            if pid not in ended and not is_running(pid):
                ended[pid] = f"Process {pid} of a fixture of the {scope} has ended: {words}"
        if ended:
            report.sections.append((f"Ended programs, {call.when}", "\n".join(ended.values())))
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, Any, Any]:
    """Watch the end of the session, and what Python does after it: it joins the threads of executors."""
    session.config.stash[_RUN].begin("the end of the session").last = True
    return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    # A program that called pytest goes on afterwards.
    if "pytest" not in Path(sys.argv[0]).parts[-2:]:
        config.stash[_RUN].watch.close()
