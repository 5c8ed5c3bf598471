"""The interface of a fuzz target: inputs are drawn in chunks, each from its own generator.

So a chunk is the same in every process and order. An input is a JSON value
(bytes as Latin-1 text), to be written to a file and tried again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

Input = Any

CHUNK = 500
"""Tries in a chunk; a target whose inputs are sequences may go a little beyond."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input, and which property it broke."""

    input: Input
    why: str


class Target(Protocol):
    """Draws inputs and tries them against the real code; what it holds open, `close` releases."""

    name: str

    def draw(self, rng: Random) -> Input:
        """One input, half of the time made from something that was validly signed."""

    def tries(self, given: Input) -> int:
        """How many requests, documents or deliveries an input is."""

    def try_all(self, given: Sequence[Input]) -> list[Finding]:
        """Try inputs in order and return the findings. Errors of the code under test are findings."""

    def close(self) -> None:
        """Release files and loops."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One chunk's outcome."""

    chunk: int
    count: int
    findings: list[Finding]


def try_chunk(target: Target, seed: int, chunk: int, size: int = CHUNK) -> Tried:
    """Draw and try one chunk."""
    rng = Random(f"{target.name}/{seed}/{chunk}")
    inputs: list[Input] = []
    count = 0
    while count < size:
        inputs.append(target.draw(rng))
        count += target.tries(inputs[-1])
    return Tried(chunk, count, target.try_all(inputs))


def try_many(target: Target, seed: int, count: int) -> Iterator[Tried]:
    """Chunk after chunk until at least `count` were tried."""
    done = chunk = 0
    while done < count:
        tried = try_chunk(target, seed, chunk, min(CHUNK, count - done))
        yield tried
        done += tried.count
        chunk += 1


def described(error: BaseException) -> str:
    """What an error was, and where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
    return f"{type(error).__name__}: {error}{where}"
