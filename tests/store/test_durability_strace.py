"""Rule 1 from outside: what the kernel saw of a real controller while deliveries came in.

Each 2xx leaves after a write to the store and a sync of it that began after its body had arrived.
A duplicate's writes nothing: the sync is the one of its first, which may still be under way when it
comes. What is not kept at all has none to wait for: a ping, and events of no interest.
"""

import asyncio
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.store.served import Served
from tests.store.system_calls import STRACE, Answer, answers, read_trace, too_early

CONNECTIONS = 8
EACH = 12
FRESH = CONNECTIONS * EACH
TWICE = 24


@pytest.fixture
def strace() -> str:
    found = shutil.which("strace")
    if found is None:
        pytest.fail("strace is missing: as root, scripts/bootstrap.sh or apt-get install strace")
    return found


@pytest.mark.systems
@pytest.mark.case(
    "power fails after a delivery, or a duplicate of one, was acknowledged: it was synced before "
    "the answer",
    topic="EC2's machines",
    source="SQLite: WAL",
)
async def test_each_2xx_follows_a_sync_that_began_after_its_body_arrived(
    strace: str, tmp_path: Path
) -> None:
    trace, served = tmp_path / "trace", Served(tmp_path / "fleet", tmp_path / "state.db")
    process = await served.start(strace, *STRACE[1:], "-o", str(trace))
    assert process.returncode is None, served.log()
    sent = [range(1 + EACH * number, 1 + EACH * (number + 1)) for number in range(CONNECTIONS)]
    statuses = await asyncio.gather(
        *(served.deliver(*jobs, pieces=1 + number % 3) for number, jobs in enumerate(sent))
    )
    assert {status for of_one in statuses for status in of_one} == {202}
    for job in range(FRESH + 1, FRESH + TWICE + 1):
        both = await asyncio.gather(served.deliver(job), served.deliver(job))
        assert sorted(both) == [[200], [202]]
    # After one more answer, all earlier calls of the loop's thread have returned and are in the trace.
    assert await served.deliver(FRESH + TWICE + 1) == [202]
    # strace passes no signal on, so the signal goes to its child, and strace ends with the child.
    os.kill(_child_of(process.pid), signal.SIGKILL)
    async with asyncio.timeout(PATIENCE):
        await process.wait()

    calls = read_trace(trace.read_text(errors="replace"))
    found = answers(calls)
    assert len(found) >= FRESH + 2 * TWICE
    assert all(answer.arrived for answer in found)
    twice = found[FRESH : FRESH + 2 * TWICE]
    pairs = list(zip(twice[::2], twice[1::2], strict=True))
    assert any(later.arrived < earlier.left for earlier, later in pairs)
    once = [*found[:FRESH], *found[FRESH + 2 * TWICE :]]
    judged = [*once, *(one for pair in pairs for one in as_of_the_first(*pair))]
    assert too_early(judged, calls, tmp_path / "state.db-wal") == []
    assert await served.kept() == set(range(1, FRESH + TWICE + 2))


def as_of_the_first(*pair: Answer) -> list[Answer]:
    """Return the answers with a duplicate dated at the arrival of the first delivery."""
    arrived = min(answer.arrived for answer in pair)
    return [replace(one, arrived=arrived) if one.status == 200 else one for one in pair]


def _child_of(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


SOCKET = "TCP:[127.0.0.1:8443->127.0.0.1:50000]"
WAL = "/srv/state.db-wal"
BODY = f'7 10.0 read(9<{SOCKET}>, "POST /webhook"..., 65536) = 12000 <0.5>'
WRITE = f'8 11.0 pwrite64(5<{WAL}>, "x"..., 4096, 0) = 4096 <0.5>'
SYNC = f"8 12.0 fdatasync(5<{WAL}>) = 0 <0.5>"
SENT = f'7 13.0 write(9<{SOCKET}>, "HTTP/1.1 202 Accepted"..., 200) = 200 <0.1>'


def at(line: str, moment: float) -> str:
    thread, _, rest = line.split(" ", 2)
    return f"{thread} {moment} {rest}"


@pytest.mark.parametrize(
    ("lines", "early"),
    [
        ([BODY, WRITE, SYNC, SENT], 0),
        ([BODY, WRITE, SENT], 1),
        ([BODY, SYNC, SENT], 1),
        ([BODY, WRITE, SENT, at(SYNC, 14.0)], 1),
        ([BODY, WRITE, at(SYNC, 12.6), SENT], 1),
        ([BODY, SENT, at(WRITE, 14.0), at(SYNC, 15.0)], 1),
        ([at(WRITE, 8.0), at(SYNC, 9.0), BODY, SENT], 1),
        ([at(WRITE, 9.9), at(SYNC, 10.4), BODY, SENT], 1),
        ([at(BODY, 5.0), WRITE, SYNC, at(BODY, 12.2), SENT], 1),
        ([BODY, WRITE, SYNC.replace("= 0", "= -1 EIO (Input/output error)"), SENT], 1),
        ([BODY, WRITE, SYNC.replace("state.db-wal", "other.db-wal"), SENT], 1),
        ([BODY, WRITE, SENT.replace("202", "503")], 0),
        ([at(BODY, 5.0), at(WRITE, 6.0), at(SYNC, 7.0), at(SENT, 8.0), BODY, SENT], 1),
    ],
)
def test_the_check_finds_an_answer_before_its_sync(lines: list[str], early: int) -> None:
    calls = read_trace("\n".join(lines))
    assert len(too_early(answers(calls), calls, Path(WAL))) == early


def test_interleaved_system_calls_of_threads_are_joined() -> None:
    calls = read_trace(
        "\n".join(
            [
                f"8 12.0 fdatasync(5<{WAL}> <unfinished ...>",
                BODY,
                "9 12.3 <... read resumed>) = 5 <0.1>",
                "8 12.7 <... fdatasync resumed>) = 0 <0.7>",
                "7 12.8 +++ exited with 0 +++",
                "7 12.9 read(3, 0x7f, 12) = -1 EBADF (Bad file descriptor) <0.1>",
            ]
        )
    )
    assert [(c.name, c.began, round(c.ended, 3), c.result) for c in calls] == [
        ("read", 10.0, 10.5, 12000),
        ("fdatasync", 12.0, 12.7, 0),
    ]
