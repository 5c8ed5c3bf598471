"""`make fuzz`: tries every target 1,000,000 times, or repeats one input or one chunk.

Exit status: 0 if nothing was found, 1 if something was found, 130 after Ctrl-C.
"""

import argparse
import json
import secrets
import sys
from pathlib import Path

from tests.fuzz.campaign import Campaign, quiet
from tests.fuzz.target import Finding, Target, try_chunk
from tests.fuzz.targets import TARGETS

FOUND = Path(".cache/fuzz")
INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """The exit status."""
    options = _options(arguments)
    if options.input is not None or options.chunk is not None:
        if len(options.targets) != 1:
            sys.exit("--input and --chunk want one target")
        return _again(options)
    _say(f"seed {options.seed}; again with: make fuzz ARGS='--seed {options.seed}'")
    good = True
    try:
        for name in options.targets or TARGETS:
            campaign = Campaign(
                name, options.seed, options.count, options.folder, options.processes, _say
            )
            good &= campaign.run()
    except KeyboardInterrupt:
        _say("interrupted")
        return INTERRUPTED
    return 0 if good else 1


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], help="default: all")
    parser.add_argument("--count", type=int, default=1_000_000, help="tries of each target")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=FOUND, help="where findings are written")
    parser.add_argument("--input", type=Path, help="try the input in this file again")
    parser.add_argument("--chunk", type=int, help="try this chunk again, in this process")
    return parser.parse_args(arguments)


def _again(options: argparse.Namespace) -> int:
    quiet()
    target = TARGETS[options.targets[0]]()
    try:
        findings = _findings_of(options, target)
    finally:
        target.close()
    for finding in findings:
        _say(f"FOUND in {target.name}: {finding.why}")
    _say(f"{target.name}: {len(findings)} found")
    return 1 if findings else 0


def _findings_of(options: argparse.Namespace, target: Target) -> list[Finding]:
    if options.input is None:
        return try_chunk(target, options.seed, options.chunk).findings
    given = json.loads(options.input.read_text())
    return target.try_all([given])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
