"""One push to a large repository, replayed against a GitHub and an EC2 on this host.

It decides what is started and shown, in which order; the result is the last line. The controller
runs as `autoscaler serve` runs it, the machines' agents are real, and whatever happens nothing of it
stays behind.
"""

import asyncio
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from lab.laboratory import LabFleet, Laboratory
from lab.live import screen
from lab.push import Push, PushError, read_example, read_push
from lab.report import (
    PriceOf,
    Steps,
    make_report,
    print_left_out,
    print_report,
)
from lab.verdict import Fault, verdict, violations
from lab.watch import Ending, Patience, Watch

DEFAULT_SCALE = 80.0
"""Lab seconds a real second: two busy cores keep up, and the example takes a minute and a half."""

FAILED = 1
UNUSABLE = 2

StepsOf = Callable[[Path], Awaitable[Mapping[str, Steps]]]
"""What a controller that has ended recorded in its store, by runner. May raise any Exception."""

_TICK = 0.25
_LOG_LINES = 15
_LOG_WIDTH = 400
_KEPT = ("controller.log", "fleet.yaml", "state.db", "state.db-wal", "metrics.txt", "calls.txt")
_DEADLINE = 120.0
"""Real seconds that a machine has for each stage before its job: a faster clock boots no faster."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How to replay. `scale` is lab seconds a real second; `push` None is the package's own.

    `fault` is what the lab does wrong on purpose: the demo passes if it notices. A folder to `keep`
    gets the controller's log, configuration, store and metrics in the end, and counts of all calls.
    """

    scale: float = DEFAULT_SCALE
    fault: Fault | None = None
    push: Path | None = None
    keep: Path | None = None
    patience: Patience = field(default_factory=Patience)


_FAULTS: Mapping[Fault | None, tuple[str, ...]] = {
    Fault.LOST_JOB: (
        "On purpose, GitHub forgets one queued job. The demo passes if that is noticed.",
    ),
    Fault.LEAKED_MACHINE: (
        "On purpose, EC2 does not terminate one machine. The demo passes if that is noticed.",
    ),
}


class _CannotStartError(Exception):
    """The lab or the controller did not come up."""


def main(
    price_of: PriceOf,
    steps_of: StepsOf,
    options: DemoOptions | None = None,
    console: Console | None = None,
) -> int:
    """Replay a push; the exit status.

    0: every job ran exactly once and succeeded, nothing is left, and the controller ended well; or
    the planted fault was noticed, and nothing else went wrong. 1: not so. 2: a push, or a folder to
    keep things in, that cannot be used. 128 and a signal's number (130 for Ctrl-C): stopped by it.
    To be called in the main thread.
    """
    chosen = options or DemoOptions()
    out = console or Console(highlight=False, markup=False, emoji=False)
    try:
        push = read_example() if chosen.push is None else read_push(chosen.push)
        for sku in push.skus.values():
            price_of(sku.instance_type, sku.os)
        if chosen.keep is not None:
            chosen.keep.mkdir(parents=True, exist_ok=True)
    except (PushError, ValueError, OSError) as error:
        out.print(f"error: {error}", style="red", soft_wrap=True)
        return UNUSABLE
    # Machines run as another user when this one is root, and must get into the lab's folders.
    umask = os.umask(0o022)
    try:
        return asyncio.run(_Demo(push, price_of, steps_of, chosen, out).run())
    finally:
        os.umask(umask)


class _Demo:
    """One replay."""

    def __init__(
        self,
        push: Push,
        price_of: PriceOf,
        steps_of: StepsOf,
        options: DemoOptions,
        console: Console,
    ) -> None:
        self._began = time.monotonic()
        self._push = push
        self._price_of = price_of
        self._steps_of = steps_of
        self._options = options
        self._console = console
        self._told: signal.Signals | None = None

    async def run(self) -> int:
        """Replay and remove everything; the exit status."""
        self._introduce()
        fleet = lab_fleet(self._push, self._options.scale)
        lab = Laboratory(fleet, report=lambda what: self._stage(f"starting {what}"))
        # Only what is inside is cut short by a signal, never the removal of the lab.
        async with AsyncExitStack() as stack:
            return await self._until_told(self._replay(lab, stack))

    async def _until_told(self, work: Coroutine[None, None, int]) -> int:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)

        def stop(number: signal.Signals) -> None:
            if self._told is None:
                self._told = number
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if self._told is None:
                raise
            self._console.print("Stopped; removing everything.", style="red")
            return 128 + self._told
        except _CannotStartError as error:
            self._console.print(f"FAILED: {error}", style="red", soft_wrap=True)
            return FAILED

    async def _replay(self, lab: Laboratory, stack: AsyncExitStack) -> int:
        try:
            await stack.enter_async_context(lab)
            if self._options.keep is not None:
                stack.callback(_keep, lab.folder, self._options.keep)
            self._list_prices(lab)
            await lab.start_controller()
        except (RuntimeError, ValueError, OSError) as error:
            raise _CannotStartError(str(error)) from error
        if self._options.fault is Fault.LOST_JOB:
            lab.github.lose_next(1)
        if self._options.fault is Fault.LEAKED_MACHINE:
            lab.ec2.faults.leak_next(1)
        self._stage(f"pushing {self._push.count} jobs\n")
        lab.github.push(self._push.job_specs())
        watch = Watch(lab, self._options.patience, self._push.shortest_minutes * 60)
        ending = await self._watch(watch)
        return await self._conclude(lab, ending, watch.why(ending))

    def _list_prices(self, lab: Laboratory) -> None:
        """Put the push's instance types on the lab's price list, as AWS lists all of its types."""
        for sku in self._push.skus.values():
            dollars = self._price_of(sku.instance_type, sku.os)
            lab.ec2.prices.set_on_demand(sku.instance_type, dollars, sku.os)

    async def _watch(self, watch: Watch) -> Ending:
        with screen(self._console) as shown:
            while True:
                ending = watch.ending()
                shown.show(await watch.look(), last=ending is not None)
                if ending is not None:
                    return ending
                await asyncio.sleep(_TICK)

    async def _conclude(self, lab: Laboratory, ending: Ending, why: str) -> int:
        console, metrics = self._console, await lab.controller.metrics()
        status = await lab.controller.terminate()
        found = violations(lab, ending, why, status)
        passed, lines = verdict(found, self._options.fault)
        _write_counts(lab.folder, metrics, lab.ec2.calls, lab.github.calls)
        if not passed:
            self._print_log(lab)
        console.print()
        report = make_report(lab, self._push, self._price_of, await self._steps(lab.folder))
        print_report(console, report)
        print_left_out(console, self._push)
        for line in lines:
            console.print(line, style="green" if passed else "red", soft_wrap=True)
        return 0 if passed else FAILED

    async def _steps(self, folder: Path) -> Mapping[str, Steps]:
        try:
            return await self._steps_of(folder / "state.db")
        except Exception as error:  # noqa: BLE001 - the result must not be lost for a column of it
            self._console.print(f"The controller's store cannot be read: {error}", style="red")
            return {}

    def _stage(self, words: str) -> None:
        """Say what is done now, and after how many real seconds."""
        self._console.print(f"{time.monotonic() - self._began:5.1f} s  {words}", soft_wrap=True)

    def _introduce(self) -> None:
        push, counts = self._push, self._push.jobs_by_label
        windows = sum(counts[name] for name, sku in push.skus.items() if sku.os.value == "windows")
        lines = [
            f"Replaying {push.about}:",
            f"{push.count} jobs, {self._options.scale:g} times as fast as life;",
            "but machines boot no faster than this host lets them, all at once.",
            *_FAULTS.get(self._options.fault, ()),
            "The controller and the machines' agents are real, in processes of their own;",
            "GitHub, EC2 and the runners' program are stand-ins on this host.",
        ]
        if windows:
            lines.append(
                "Windows machines run the same agent; their PowerShell is parsed, not run."
            )
        self._console.print("\n".join(lines), end="\n\n")

    def _print_log(self, lab: Laboratory) -> None:
        self._console.print("The end of the controller's log:")
        for line in lab.controller.log_end(_LOG_LINES).splitlines():
            self._console.print(f"  {line[:_LOG_WIDTH]}", soft_wrap=True, style="dim")
        self._console.print()


def lab_fleet(push: Push, scale: float) -> LabFleet:
    """The laboratory that a push needs."""
    owner, _, name = push.repository.partition("/")
    seconds = _DEADLINE * scale
    deadlines = {
        stage: f"{max(least, seconds):.0f}s"
        for stage, least in (("boot", 1800.0), ("health_checks", 600.0), ("ready_silence", 300.0))
    }
    return LabFleet(
        organization=owner,
        repositories=(name,),
        skus={
            label: {
                "on": [{"provider": "lab", "instance_types": [sku.instance_type]}],
                "os": sku.os.value,
                "arch": sku.arch.value,
                "disk_gb": sku.disk_gb,
                "deadlines": deadlines,
            }
            for label, sku in push.skus.items()
        },
        scale=scale,
    )


def _write_counts(
    folder: Path,
    metrics: Mapping[str, float],
    ec2: Counter[str],
    github: Mapping[tuple[str, int], int],
) -> None:
    """All metrics as scraped at the end, and how often each call was made, for `keep`."""
    scraped = "".join(f"{name} {value:g}\n" for name, value in metrics.items())
    (folder / "metrics.txt").write_text(scraped)
    lines = [f"EC2 {name} {count}" for name, count in sorted(ec2.items())]
    lines += [f"GitHub {name} {status} {count}" for (name, status), count in sorted(github.items())]
    (folder / "calls.txt").write_text("\n".join(lines) + "\n")


def _keep(lab: Path, folder: Path) -> None:
    for name in _KEPT:
        if (lab / name).exists():
            shutil.copyfile(lab / name, folder / name)
