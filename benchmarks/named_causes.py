"""What the first page says of a fault: how soon it names the cause and the next action, and what else it shows.

Run as root: `PYTHONPATH=. python benchmarks/named_causes.py [FAULT...] [--scale 30] [--quiet-hour] [--pairs]`.
Plants each FAULT of `tests/lab/system/planted_faults.py` (A+B: both at once) in a laboratory at work, with a
real controller, and reads the first page twice a second. Without a FAULT it plays all, five pairs, and a lab
hour without faults.
Prints the seconds, and what the page said. Seconds depend on the host; what the page names should not.
"""

import argparse
import asyncio
import sys
import time

from lab.ec2.moto import MotoProcess
from tests.lab.system.planted_faults import FAULTS, PAIRS
from tests.lab.system.watched_faults import READ_EVERY, Watch, laboratory_for, watch

HOUR = 3600.0


async def play(moto: MotoProcess, names: tuple[str, ...], options: argparse.Namespace) -> Watch:
    """Plant these faults in a new laboratory."""
    async with laboratory_for(moto, options.scale, names) as made:
        return await watch(made, names, options.aftermath, options.recovery)


async def quiet_hour(moto: MotoProcess, scale: float) -> dict[str, str]:
    """Return the faults that the page shows in an hour without any, by their text."""
    found: dict[str, str] = {}
    async with laboratory_for(moto, scale, ()) as made:
        end = made.lab.clock.now() + HOUR
        while made.lab.clock.now() < end:
            reading = await made.read()
            found |= dict.fromkeys(reading.faults, reading.verdict)
            await asyncio.sleep(READ_EVERY)
    return found


def show(seen: Watch, scale: float) -> None:
    """Print what was seen. Seconds count from when the controller knew of the fault."""
    for one in seen.sightings:
        word = "named" if one.named else "no action" if one.cause else "NOT NAMED"
        known = _seconds(one.planted, one.known, scale)
        cause, named = (_seconds(one.known, at, scale) for at in (one.cause, one.named))
        print(
            f"{one.name}: {word}, known after {known} ({one.event}), cause {cause}, cause and action {named}, "
            f"entry {one.rank}, gone {_seconds(one.lifted, one.gone, scale)} after its end"
        )
        print(f"    page: {one.text or '(nothing)'}")
        if one.misleading:
            print(f"    MISLEADS: {one.misleading}")
    for where, others in (("also", seen.others), ("after", seen.after), ("host", seen.of_host)):
        for text in others.values():
            print(f"    {where}: {text}")
    print(f"    no fault {_seconds(seen.sightings[0].lifted, seen.clear, scale)} after the end")
    print(f"    log: {seen.events}", flush=True)


def _seconds(begin: float | None, end: float | None, scale: float) -> str:
    if begin is None or end is None:
        return "-"
    return f"{end - begin:.1f} s ({(end - begin) * scale:.0f} lab s)"


async def main() -> int:
    """Play what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=", ".join(FAULTS))
    parser.add_argument("--scale", type=float, default=30.0)
    parser.add_argument("--aftermath", type=float, default=240.0)
    parser.add_argument("--recovery", type=float, default=1800.0)
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--quiet-hour", action="store_true")
    options = parser.parse_args()
    everything = not (options.faults or options.pairs or options.quiet_hour)
    chosen = [tuple(name.split("+")) for name in (FAULTS if everything else options.faults)]
    moto = MotoProcess()
    moto.start()
    try:
        for names in (*chosen, *(PAIRS if everything or options.pairs else ())):
            print(f"== {' + '.join(names)}  {time.strftime('%H:%M:%S')}", flush=True)
            show(await play(moto, names, options), options.scale)
        if everything or options.quiet_hour:
            alarms = await quiet_hour(moto, options.scale)
            print(f"== a quiet hour: {alarms or 'no fault'}", flush=True)
    finally:
        moto.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
