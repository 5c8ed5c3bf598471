"""Decides whether a replay passed, and words the last line of the demo.

Without a planted fault, every job must run exactly once, and no machine, volume or registration may be
left. With a planted fault, the demo must find that fault and nothing else wrong.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from autoscaler.model.wording import counted
from lab.github.records import Job, JobStatus
from lab.laboratory import Laboratory
from lab.watch import Ending

PASSED = "PASSED: every job ran exactly once, and nothing is left."


class Fault(Enum):
    """An error that the lab makes on purpose, worded as the subject of a sentence."""

    LOST_JOB = "the job that the lab's GitHub lost"
    LEAKED_MACHINE = "the machine that the lab's EC2 did not terminate"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that went wrong. `planted` is True if the lab caused it on purpose."""

    text: str
    planted: bool = False


def violations(
    lab: Laboratory, ending: Ending, why: str, status: int, requests: Mapping[str, int]
) -> list[Violation]:
    """Return everything that went wrong.

    That is an early ending, jobs that did not run exactly once, machines that no launch request asked for,
    resources that are left, and a controller that failed. `why` is the ending in words, `status` the first
    exit status of a controller that is not 0. `requests` has the number of machines of each launch request.
    """
    found = [*_jobs(lab), *_launched_twice(lab, requests), *_left(lab)]
    if ending is not Ending.FINISHED:
        expected = {Ending.STUCK: _lost(lab), Ending.LEFT: bool(_leaked(lab))}
        found.insert(0, Violation(f"gave up: {why}", expected.get(ending, False)))
    if status:
        found.append(Violation(f"a controller exited with status {status}"))
    return found


def verdict(found: list[Violation], fault: Fault | None) -> tuple[bool, list[str]]:
    """Return True if the replay passed, and the lines to print."""
    wrong = [one.text for one in found if not (one.planted and fault)]
    noticed = [one.text for one in found if one.planted and fault]
    lines = [f"Noticed: {text}" for text in noticed]
    if fault is not None and not noticed:
        wrong.append(f"the demo did not notice {fault.value}")
    if wrong:
        return False, [*lines, *(f"FAILED: {text}" for text in wrong)]
    last = PASSED if fault is None else f"PASSED: {fault.value} was noticed, as expected."
    return True, [*lines, last]


def _jobs(lab: Laboratory) -> Iterator[Violation]:
    """Yield each job that did not run exactly once and succeed."""
    jobs = lab.github.jobs
    blocked = [job for job in jobs if job.status is JobStatus.BLOCKED]
    wrong = (job for job in jobs if job.status is not JobStatus.BLOCKED and not _is_right(job))
    # A fleet that cannot launch fails all jobs in the same way: one line for each SKU.
    for _, group in groupby(wrong, lambda job: (job.spec.labels, _outcome(job), job.lost)):
        first, *others = group
        more = f" and {len(others)} more like it" if others else ""
        yield Violation(f"job {first.spec.name}{more}: {_outcome(first)}", first.lost)
    if blocked:
        never = counted(len(blocked), "job")
        what = f"never queued: {never}, because jobs that they need did not end"
        yield Violation(what, _lost(lab))


def _launched_twice(lab: Laboratory, requests: Mapping[str, int]) -> Iterator[Violation]:
    if not requests:  # the store could not be read
        return
    made = Counter(one.tags.get("autoscaler:launch-request", "?") for one in lab.ec2.instances)
    for request, count in made.items():
        if count > requests.get(request, 0):
            wanted = counted(requests.get(request, 0), "machine")
            yield Violation(f"launch request {request} was for {wanted}, and EC2 launched {count}")


def _left(lab: Laboratory) -> Iterator[Violation]:
    """Yield what is left once all jobs have ended. Before that, a waiting job may need a machine."""
    if lab.github.unfinished:
        return
    leaked = _leaked(lab)
    for thing in lab.left():
        yield Violation(f"left: {thing}", any(one in thing for one in leaked))


def _lost(lab: Laboratory) -> bool:
    return any(job.lost for job in lab.github.jobs)


def _leaked(lab: Laboratory) -> set[str]:
    """Return the ids of the machines that the lab leaks on purpose, and of their volumes."""
    leaked = [one for one in lab.ec2.machines_left() if lab.ec2.faults.leaks(one)]
    return {one.id for one in leaked} | {one.volume_id for one in leaked}


def _is_right(job: Job) -> bool:
    return len(job.starts) == 1 and job.conclusion == "success"


def _outcome(job: Job) -> str:
    state = job.conclusion or job.status.value.replace("_", " ")
    lost = ", lost by the lab" if job.lost else ""
    return f"started {counted(len(job.starts), 'time')}, {state}{lost}"
