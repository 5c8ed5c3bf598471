"""Replays one push to a large repository against a simulated GitHub and EC2 on this host.

The controller and the machines' agents are the real programs. The last line printed is the result. The
demo removes every process and file that it created, even after an error or Ctrl-C.
"""

import asyncio
import os
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console

from autoscaler.model.wording import counted
from lab.fleet import MOST_PROCESSES
from lab.host_check import HostTooSmallError, check_host
from lab.introduction import introduction
from lab.kept_files import keep_files, write_counts
from lab.kubernetes.processes import ProgramFailedError
from lab.kubernetes.programs import ProgramMissingError
from lab.laboratory import Laboratory
from lab.live import screen
from lab.pace import slowness
from lab.push import Push, PushError, read_example, read_push
from lab.push_fleet import lab_fleet
from lab.replicas.takeovers import Faults, Takeovers
from lab.report import PriceOf, make_report, print_not_replayed, print_report
from lab.stored import ReadStored, Stored
from lab.verdict import Fault, Violation, verdict, violations
from lab.waiting import explain_oldest, print_reasons
from lab.watch import Ending, Patience, Watch

DEFAULT_SCALE = 80.0
"""Lab seconds per real second. Two cores that are otherwise free keep up, and the built-in push takes 90 s."""

REPLICAS_SCALE = 60.0
"""The same with replicas: the push outlasts what happens to them, and a takeover is 16 minutes of lab time."""

LEAST_SCALE = 8.0
"""The scale on the busiest host: the built-in push takes a quarter of an hour."""

REPLICAS = 3

FAILED = 1
UNUSABLE = 2
_TICK = 0.25


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of one replay.

    `scale` is lab seconds per real second; None is what this host keeps up with. `push` is the push file;
    None is the built-in push.
    `fault` is an error that the lab makes on purpose; the demo passes if it reports that error.
    `keep` is a folder that receives the controller's log, configuration, store and metrics, and the
    number of calls. `kubernetes` replays also the jobs that can run on pods. `stay` keeps everything up after
    the push until Ctrl-C, to look at the console. With `replicas`, three controllers share a store, and this
    happens to their leaders.
    """

    scale: float | None = None
    fault: Fault | None = None
    push: Path | None = None
    keep: Path | None = None
    kubernetes: bool = False
    stay: bool = False
    replicas: Faults | None = None
    patience: Patience = field(default_factory=Patience)


def fitting_scale(slowness: float, most: float = DEFAULT_SCALE) -> float:
    """Return the scale for a host of this slowness: that it is busy must not look like a delay in lab time."""
    return max(LEAST_SCALE, most / slowness)


class _CannotStartError(Exception):
    """The lab or the controller did not start."""


def main(
    price_of: PriceOf,
    read_stored: ReadStored,
    options: DemoOptions | None = None,
    console: Console | None = None,
) -> int:
    """Replay a push and return the exit status. Call it in the main thread.

    0: every job ran exactly once and succeeded, no machine, volume, pod or registration is left, and
    the controller exited with status 0; or the demo reported the planted fault and no other error.
    1: anything else went wrong. 2: the push file or the `keep` folder cannot be used, or this host lacks
    something that the demo needs. 128 plus the signal's number (130 for Ctrl-C): a signal stopped the demo.
    """
    chosen = options or DemoOptions()
    out = console or Console(highlight=False, markup=False, emoji=False)
    try:
        push = read_example() if chosen.push is None else read_push(chosen.push)
        push = push.with_pods() if chosen.kubernetes else push
        for sku in push.skus.values():
            price_of(sku.instance_type, sku.os)
        if chosen.keep is not None:
            chosen.keep.mkdir(parents=True, exist_ok=True)
        machines, replicas = min(push.most_at_once, MOST_PROCESSES), chosen.replicas is not None
        check_host(Path(tempfile.gettempdir()), machines, replicas=replicas)
    except (PushError, ValueError, OSError, HostTooSmallError) as error:
        out.print(f"error: {error}", style="red", soft_wrap=True)
        return UNUSABLE
    # As root, machines run as another user, which must be able to enter the lab's folders.
    umask = os.umask(0o022)
    try:
        return asyncio.run(_Demo(push, price_of, read_stored, chosen, out).run())
    finally:
        os.umask(umask)


def _command_line(folder: Path) -> str:
    """Return a command for the lab's controller that works as it is copied, in the working directory."""
    program = Path(sys.executable).with_name("autoscaler")
    if not program.exists():
        words = [sys.executable, "-m", "autoscaler.cli"]
    elif program.is_relative_to(Path.cwd()):
        words = [str(program.relative_to(Path.cwd()))]
    else:
        words = [str(program)]
    return shlex.join([*words, "status", "-c", str(folder / "fleet.yaml")])


class _Demo:
    """One replay."""

    def __init__(
        self,
        push: Push,
        price_of: PriceOf,
        read_stored: ReadStored,
        options: DemoOptions,
        console: Console,
    ) -> None:
        self._began = time.monotonic()
        self._push = push
        self._price_of = price_of
        self._read_stored = read_stored
        self._options = options
        most = DEFAULT_SCALE if options.replicas is None else REPLICAS_SCALE
        self._scale = fitting_scale(slowness(), most) if options.scale is None else options.scale
        self._console = console
        self._stopped_by: signal.Signals | None = None
        self._staying: asyncio.Event | None = None
        """Set by a signal while the demo stays up after its push; None before."""

    async def run(self) -> int:
        """Replay the push, remove everything, and return the exit status."""
        about = introduction(
            self._push,
            self._scale,
            self._options.fault,
            replicas=self._options.replicas is not None,
        )
        self._console.print(about, end="\n\n")
        fleet = lab_fleet(self._push, self._scale)
        if self._options.replicas is not None:
            fleet = replace(fleet, replicas=REPLICAS)
        lab = Laboratory(fleet, report=lambda what: self._stage(f"starting {what}"))
        # A signal cancels the replay but never the removal of the lab.
        async with AsyncExitStack() as stack:
            return await self._until_signal(self._replay(lab, stack))

    async def _until_signal(self, work: Coroutine[None, None, int]) -> int:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)

        def stop(number: signal.Signals) -> None:
            if self._staying is not None and not self._staying.is_set():
                self._staying.set()
            elif self._stopped_by is None:
                self._stopped_by = number
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopped_by is None:
                raise
            self._console.print("Stopped. Removing all processes and files.", style="red")
            return 128 + self._stopped_by
        except _CannotStartError as error:
            self._console.print(f"FAILED: {error}", style="red", soft_wrap=True)
            return FAILED

    async def _replay(self, lab: Laboratory, stack: AsyncExitStack) -> int:
        try:
            await stack.enter_async_context(lab)
            if self._options.keep is not None:
                stack.callback(keep_files, lab.folder, self._options.keep)
            self._list_prices(lab)
            await lab.start_controller()
        except (
            RuntimeError,
            ValueError,
            OSError,
            ProgramMissingError,
            ProgramFailedError,
        ) as error:
            raise _CannotStartError(str(error)) from error
        if self._options.fault is Fault.LOST_JOB:
            lab.github.lose_next(1)
        if self._options.fault is Fault.LEAKED_MACHINE:
            lab.ec2.faults.leak_next(1)
        self._console.print(
            f"Console: {lab.controllers.url} (sign in with the token {lab.operator_token})\n"
            f"Commands: {_command_line(lab.folder)}",
            soft_wrap=True,
        )
        self._stage(f"pushing {counted(self._push.count, 'job')}\n")
        lab.github.push(self._push.job_specs())
        watch = Watch(lab, self._options.patience, self._push.shortest_minutes * 60)
        faults = self._options.replicas
        async with Takeovers(lab.controllers, faults, watch.started, watch.note) as takeovers:
            ending = await self._watch(watch, takeovers)
        if self._options.stay:
            await self._stay(lab)
        return await self._conclude(lab, ending, watch.why(ending), takeovers)

    async def _stay(self, lab: Laboratory) -> None:
        """Wait for Ctrl-C or another signal. The demo then goes on to its result."""
        self._staying = asyncio.Event()
        self._console.print(
            f"\nThe push is over, and everything stays up: {lab.controllers.url}\n"
            f"Sign in with the token {lab.operator_token}\n"
            f"Or run {_command_line(lab.folder)}\n"
            "Ctrl-C ends the demo with its result.",
            soft_wrap=True,
        )
        await self._staying.wait()

    def _list_prices(self, lab: Laboratory) -> None:
        """Put the push's instance types on the lab's price list, as AWS lists all of its types."""
        for sku in self._push.skus.values():
            dollars = self._price_of(sku.instance_type, sku.os)
            lab.ec2.prices.set_on_demand(sku.instance_type, dollars, sku.os)

    async def _watch(self, watch: Watch, takeovers: Takeovers) -> Ending:
        with screen(self._console) as shown:
            while True:
                ending = watch.ending()
                if ending is Ending.FINISHED and not takeovers.over:
                    ending = None
                shown.show(await watch.look(), last=ending is not None)
                if ending is not None:
                    return ending
                await asyncio.sleep(_TICK)

    async def _conclude(
        self, lab: Laboratory, ending: Ending, why: str, takeovers: Takeovers
    ) -> int:
        console, metrics = self._console, await lab.controllers.metrics()
        # Only a controller that is still up can explain.
        explanation = await explain_oldest(lab) if ending is not Ending.FINISHED else ""
        failed = lab.controllers.failed
        status = await lab.controllers.terminate()
        stored = await self._stored(lab)
        found = violations(lab, ending, why, status, stored.requests)
        found += [Violation(problem) for problem in takeovers.problems]
        passed, lines = verdict(found, self._options.fault)
        write_counts(lab, metrics)
        console.print()
        print_report(console, make_report(lab, self._push, self._price_of, stored.steps))
        for takeover in takeovers.done:
            console.print(str(takeover), soft_wrap=True)
        print_not_replayed(console, self._push)
        if not passed:
            log = "" if failed is None else failed.log_end()
            print_reasons(console, log, explanation, self._options.keep)
        for line in lines:
            console.print(line, style="green" if passed else "red", soft_wrap=True)
        return 0 if passed else FAILED

    async def _stored(self, lab: Laboratory) -> Stored:
        try:
            return await self._read_stored(lab.store, lab.folder / "state.db")
        except Exception as error:  # noqa: BLE001 - one column must not cost the whole result
            self._console.print(f"The column `added` is empty: {error}", style="red")
            return Stored()

    def _stage(self, words: str) -> None:
        """Print the stage that begins and the real seconds since the start."""
        self._console.print(f"{time.monotonic() - self._began:5.1f} s  {words}", soft_wrap=True)
