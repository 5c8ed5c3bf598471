"""Mutation testing by samples, of rooms that are too large to be mutated whole.

    python scripts/mutant_sample.py --sample N --rooms ROOM ... [--seed S] [--processes P] [--seconds T]

Draws N changes of each room and judges each in a copy of the project below .cache/mutants: the tests
that execute the changed statement run, the fastest first, until one fails. A pytest process that has
collected a room's tests judges a change in a fork (mutant_warm.py). At least 85 % are to be killed.
Each survivor is printed, with its line for docs/mutants.yaml. A change whose tests use far more CPU time than
before, or that wait for ever, counts as timed out, which is as good as killed.

Each result is kept at once in .cache/mutants/sample.jsonl, and the same command continues there. The
draw is in random order, so the results of an interrupted run are a random sample, too. Survivors are
judged again when a test of their room has changed, and with a larger `--seconds`: tests of a change
that take more CPU seconds together are skipped, the slowest first. The checkout is never changed.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

from mutant_changes import Change, draw
from mutant_room import LONGEST, SKIPPED_TESTS, WORK, Room, digest, prepared
from mutant_survivors import Survivor, entries, listed

RESULTS = WORK / "sample.jsonl"
ENOUGH = 0.85


def run(
    name: str, drawn: list[Change], copies: list[Path], known: dict[str, Any], seconds: float
) -> None:
    """Judge what was not judged yet, and keep each result at once."""
    now = digest(name, copies[0])
    left = [change for change in drawn if not _judged(known.get(change.key), now, seconds)]
    if not left:
        return
    rooms = [Room(name, copy, seconds) for copy in copies]
    free: Queue[Room] = Queue()
    for room in rooms:
        free.put(room)
    done = len(drawn) - len(left)

    def one(change: Change) -> tuple[Change, dict[str, Any]]:
        room = free.get()
        try:
            return change, room.judge(change)
        finally:
            free.put(room)

    with ThreadPoolExecutor(len(copies)) as pool, RESULTS.open("a") as file:
        try:
            for change, found in pool.map(one, left):
                done += 1
                known[change.key] = {
                    "key": change.key,
                    **found,
                    "digest": now,
                    "seconds": seconds,
                }
                file.write(json.dumps(known[change.key]) + "\n")
                file.flush()
                print(
                    f"{done}/{len(drawn)} {name} {found['result']} {found['cpu']:.1f} s", flush=True
                )
                if found["result"] == "survived":
                    print(change, flush=True)
            killers = {str(known[change.key]["by"]) for change in drawn}
            if failing := rooms[0].failing(killers):
                raise SystemExit(f"error: fails without any change, too: {failing}")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            for room in rooms:
                room.close()


def _judged(known: dict[str, Any] | None, now: str, seconds: float) -> bool:
    if known is None or known["result"] != "survived":
        return known is not None
    return bool(known["digest"] == now and known.get("seconds", LONGEST) >= seconds)


def report(drawn: list[Change], known: dict[str, Any], survivors: Collection[Survivor]) -> int:
    """Print a table and the survivors that docs/mutants.yaml does not list; 1 if too many survived."""
    status = 0
    print(
        f"\n{'room':14}{'mutants':>9}{'killed':>9}{'timeout':>9}{'survived':>9}{'share':>8}{'CPU s each':>12}"
    )
    for room in dict.fromkeys(change.room for change in drawn):
        own = [known[x.key] for x in drawn if x.room == room and x.key in known]
        if not own:
            continue
        counts = Counter(one["result"] for one in own)
        share = 1.0 - counts["survived"] / len(own)
        figures = "".join(f"{counts[word]:9}" for word in ("killed", "timeout", "survived"))
        each = sum(one["cpu"] for one in own) / len(own)
        print(f"{room:14}{len(own):9}{figures}{share:8.1%}{each:12.1f}")
        status |= share < ENOUGH
    for change in drawn:
        found = known.get(change.key, {})
        if found.get("result") == "survived" and change.survivor not in survivors:
            line = f"{change.survivor.function}: [{change.survivor.change!r}]"
            print(f"\nsurvived:\n{change}\n{line}")
    return status


def main() -> int:
    """1 if less than 85 % of a room's changes were killed, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, required=True, metavar="N", help="of each room")
    parser.add_argument("--rooms", nargs="+", required=True, metavar="ROOM")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=LONGEST, help="of CPU, a change")
    asked = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    known = {one["key"]: one for one in map(json.loads, lines)}
    copies = [prepared(f"sample-{number}") for number in range(asked.processes)]
    drawn: list[Change] = []
    interrupted = False
    try:
        for room in asked.rooms:
            some, total = draw(room, asked.sample, asked.seed)
            print(f"{room}: {len(some)} of {total} changes", flush=True)
            if skipped := SKIPPED_TESTS.get(room):
                print(f"{room}: no mutant is judged by {', '.join(skipped)}", flush=True)
            drawn += some
            run(room, some, copies, known, asked.seconds)
    except KeyboardInterrupt:
        interrupted = True
    status = report(drawn, known, listed(entries()))
    if interrupted:
        print("interrupted: the same command continues here")
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
