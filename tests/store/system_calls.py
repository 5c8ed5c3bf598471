"""What strace saw of a server, read back: which answers left before their deliveries were durable.

Times are strace's own, of the same clock for all threads: a call has begun when it was entered
and is over when it returned. It knows nothing of HTTP but where an answer begins.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TRACED = "read,readv,recvfrom,recvmsg,write,writev,sendto,sendmsg,pwrite64,fsync,fdatasync"
STRACE = ("strace", "-f", "--seccomp-bpf", "-ttt", "-T", "-yy", "-s", "32", "-e", f"trace={TRACED}")

_CALL = re.compile(
    r"(?P<thread>\d+) +(?P<at>\d+\.\d+) (?P<name>\w+)\((?P<fd>\d+)<(?P<file>[^\n]*?)>[,) ]"
    r"(?P<rest>.*)"
)
_RESUMED = re.compile(r"(?P<thread>\d+) +\d+\.\d+ <\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)")
_RESULT = re.compile(r"= (?P<result>-?\d+)[^<]*(?:<(?P<took>\d+\.\d+)>)?$")
_UNFINISHED = " <unfinished ...>"

_SYNCS = {"fsync", "fdatasync"}
_READS = {"read", "readv", "recvfrom", "recvmsg"}
_WRITES = {"write", "writev", "sendto", "sendmsg"}


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One call of one thread on one open file. Seconds."""

    name: str
    file: str
    began: float
    ended: float
    result: int
    shown: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer on a connection: when its request had been read, and when it was sent."""

    status: int
    arrived: float
    left: float


def read_trace(text: str) -> list[SystemCall]:
    """Return the completed calls in order of their start, without those on no open file."""
    open_launch_requests: dict[str, tuple[re.Match[str], str]] = {}
    found: list[SystemCall] = []
    for line in text.splitlines():
        if (resumed := _RESUMED.match(line)) is not None:
            begun = open_launch_requests.pop(resumed["thread"], None)
            if begun is not None:
                found.extend(_call(begun[0], begun[1] + resumed["rest"]))
        elif (entered := _CALL.match(line)) is not None:
            if line.endswith(_UNFINISHED):
                open_launch_requests[entered["thread"]] = entered, entered["rest"]
            else:
                found.extend(_call(entered, entered["rest"]))
    return sorted(found, key=lambda call: call.began)


def answers(calls: list[SystemCall]) -> list[Answer]:
    """Return every answer of every TCP connection."""
    arrived: dict[str, float] = {}
    found = []
    for call in calls:
        if not call.file.startswith("TCP:") or call.result <= 0:
            continue
        if call.name in _READS:
            arrived[call.file] = call.ended
        elif call.name in _WRITES and (status := re.search(r"HTTP/1\.1 (\d{3})", call.shown)):
            found.append(Answer(int(status[1]), arrived.get(call.file, 0.0), call.began))
    return found


def too_early(found: list[Answer], calls: list[SystemCall], wal: Path) -> list[Answer]:
    """Return the 2xx answers sent without a write and a sync of the log after their request arrived."""
    writes = [c for c in calls if c.name == "pwrite64" and c.file == str(wal) and c.result > 0]
    syncs = [c for c in calls if c.name in _SYNCS and c.file == str(wal) and c.result == 0]
    return [
        answer
        for answer in found
        if answer.status // 100 == 2
        and not any(
            sync.began >= answer.arrived
            and sync.ended <= answer.left
            and any(answer.arrived <= w.began and w.ended <= sync.began for w in writes)
            for sync in syncs
        )
    ]


def _call(entered: re.Match[str], rest: str) -> Iterator[SystemCall]:
    result = _RESULT.search(rest)
    if result is not None:
        began = float(entered["at"])
        ended = began + float(result["took"] or 0.0)
        yield SystemCall(
            entered["name"], entered["file"], began, ended, int(result["result"]), rest
        )
