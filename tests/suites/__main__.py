"""`python -m tests.suites everyone|systems [PART ...]`: runs a suite, or some of its parts.

Prints a line for each part that ends, the last lines of failed parts, the ten slowest tests, and a summary.
Exits with 0 if all parts passed, 1 if not, 2 for a wrong command line, and 128 plus a signal's number.
"""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.suites.parts import AT_ONCE, PARTS, Part, Suite
from tests.suites.processes import SILENCE, Ended, Runner, prepare
from tests.suites.results import Tests, failed_tests, last_lines, read_tests, slowest

LOGS = Path(".cache/tests")


def main(arguments: Sequence[str]) -> int:
    """Run the suite that the arguments name, and return the exit status."""
    try:
        name, *names = arguments
        suite = Suite(name)
        parts = select(PARTS[suite], names)
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if suite is Suite.SYSTEMS and os.geteuid() != 0:
        sys.stderr.write(
            "error: only root can build images and mount their disks; run: sudo make test-systems\n"
        )
        return 2
    return run(suite, parts, LOGS / suite)


def run(suite: Suite, parts: Sequence[Part], logs: Path, silence: float = SILENCE) -> int:
    """Run these parts and return the exit status. `silence`: real seconds in which a part may print nothing."""
    prepare()
    return _Run(suite, parts, logs, silence).run()


def select(parts: Sequence[Part], names: Sequence[str]) -> list[Part]:
    """Return the parts with these names, or all. Raises ValueError for a name that no part has."""
    known = [part.name for part in parts]
    names = [*names, *(part.after for part in parts if part.name in names and part.after)]
    for name in names:
        if name not in known:
            message = f"there is no part {name!r}; the parts are: {', '.join(known)}"
            raise ValueError(message)
    return [part for part in parts if not names or part.name in names]


@dataclass
class _Run:
    suite: Suite
    parts: Sequence[Part]
    logs: Path
    silence: float
    began: float = field(default_factory=time.monotonic)
    ended: dict[str, Ended] = field(default_factory=dict)
    unsteady: set[str] = field(default_factory=set)

    def run(self) -> int:
        try:
            if self.logs.exists():
                shutil.rmtree(self.logs)
            self.logs.mkdir(parents=True)
        except PermissionError as error:
            sys.stderr.write(
                f"error: {error.filename} belongs to another user; run: sudo make clean\n"
            )
            return 2
        at_once = int(AT_ONCE[self.suite] * max(2, len(os.sched_getaffinity(0))))
        _say(f"==> {len(self.parts)} parts, {at_once} at once. Their output: {self.logs}")
        runner = Runner(self._command, self.logs, at_once, self.silence)
        runner.run(self.parts, self._show)
        if self.suite is Suite.SYSTEMS and not runner.stopped_by:
            runner = self._try_again()
        passed = self._summarise()
        return 128 + runner.stopped_by if runner.stopped_by else int(not passed)

    def _command(self, part: Part) -> list[str]:
        return part.command(self.logs, f"--junitxml={part.file(self.logs, 'xml')}")

    def _command_of_failed(self, part: Part) -> list[str]:
        return part.command(self.logs, "--last-failed")

    def _tests(self, part: Part) -> Tests:
        return read_tests(part.file(self.logs, "xml"))

    def _show(self, ended: Ended) -> None:
        self.ended[ended.part.name] = ended
        _say(self._line(ended.part))
        if ended.status != 0:
            _say(last_lines(ended.part.file(self.logs, "log")))
            _say(f"==> {ended.part.name} failed{': ' * bool(ended.why)}{ended.why}")

    def _line(self, part: Part) -> str:
        ended = self.ended.get(part.name)
        if ended is None:
            return f"not run                          {part.name}"
        word = (
            "passed"
            if ended.status == 0
            else "UNSTEADY"
            if part.name in self.unsteady
            else "FAILED"
        )
        tests = self._tests(part).words
        return (
            f"{word:8} {ended.seconds:5.0f} s {ended.cpu:6.0f} s of CPU  {part.name}"
            f"{': ' * bool(tests)}{tests}"
        )

    def _try_again(self) -> Runner:
        """Run the failed tests of each part once more, alone. A part whose tests pass then is unsteady."""
        again = self.logs / "again"
        again.mkdir()
        failed = {part.name: failed_tests(part.file(self.logs, "cache")) for part in self.parts}
        parts = [
            replace(part, after="")
            for part in self.parts
            # With another status, pytest did not run all tests of the part.
            if part.name in self.ended and self.ended[part.name].status == 1 and failed[part.name]
        ]

        def show(ended: Ended) -> None:
            if ended.status == 0:
                self.unsteady.add(ended.part.name)
            _say(f"==> {ended.part.name}, second try of {', '.join(failed[ended.part.name])}:")
            _say(last_lines(again / f"{ended.part.name}.log", 20))

        runner = Runner(self._command_of_failed, again, 1, self.silence)
        runner.run(parts, show)
        return runner

    def _summarise(self) -> bool:
        """Print the slowest tests and a line for each part, and return whether all passed."""
        tests = [self._tests(part) for part in self.parts]
        _say("\n==> The slowest tests")
        for line in slowest(tests):
            _say(line)
        _say("\n==> Summary")
        for part in self.parts:
            _say(self._line(part))
            if part.name in self.ended and self.ended[part.name].status != 0:
                for test in failed_tests(part.file(self.logs, "cache")):
                    _say(f"                                 {test}")
        for name in sorted(self.unsteady):
            _say(
                f"\n==> UNSTEADY: {name} failed, and its failed tests passed in a second run, alone"
            )
            for log in (self.logs / f"{name}.log", self.logs / "again" / f"{name}.log"):
                _say(last_lines(log, 20))
        good = [
            name for name, one in self.ended.items() if one.status == 0 or name in self.unsteady
        ]
        cpu = sum(one.cpu for one in self.ended.values())
        _say(f"\n{time.monotonic() - self.began:.0f} s, {cpu:.0f} s of CPU")
        failed = sum(
            max(one.failed, int(part.name not in good))
            for part, one in zip(self.parts, tests, strict=True)
            if part.name not in good
        )
        _say(f"{sum(one.passed for one in tests)} passed, {failed} failed")
        return len(good) == len(self.parts)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
