"""The table of reason codes: each sentence can be filled, and each reason that is made has one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.table import CODES, FaultCode, Unmatched, WaitCode, cause_of
from autoscaler.model.reasons.waiting import Reason

ROOT = Path(__file__).parents[2] / "autoscaler"
OF_JOBS = [
    (code, variant)
    for codes in (WaitCode, Unmatched)
    for code in codes
    for variant in ("", *code.entry.variants)
]


@pytest.mark.parametrize(("code", "variant"), OF_JOBS)
def test_each_sentence_of_a_waiting_job_is_filled_from_the_fields_of_a_reason(
    code: Code, variant: str
) -> None:
    reason = Reason(code, ("a", "b"), "{words}", 1.0, 3, "here", variant)
    assert reason.message
    assert "{words}" in reason.message or "{" not in reason.message


def test_a_code_has_one_entry_and_a_sentence() -> None:
    members = [code for codes in (WaitCode, Unmatched, FaultCode) for code in codes]
    assert len(CODES) == len(members)
    without = {code for code in members if not code.entry.sentence}
    assert without == {FaultCode.DRAINED, FaultCode.QUARANTINED}


def test_a_code_without_other_words_is_called_by_its_own() -> None:
    assert cause_of("capacity") == "out of capacity"
    assert cause_of("store_fails") == "store fails"
    assert cause_of("powered_off") == "powered off"


SAID_BY_SENTENCE = {WaitCode.NOT_ASSIGNED, FaultCode.STORE_DISK_LOW}
SAID_BY_REASON = {FaultCode.JOB_WAITS_FOR_HOURS, FaultCode.JOBS_START_LATE}
"""Jobs of these codes wait for another reason, whose fault says what to do."""


def test_each_code_whose_alert_is_a_page_says_what_to_do() -> None:
    pages = {code for code in CODES.values() if code.entry.is_page and code.entry.fires}
    silent = {code for code in pages if not code.entry.mend}
    assert silent == SAID_BY_SENTENCE | SAID_BY_REASON


def variants() -> Iterator[str]:
    """Yield the names of variants in the calls of the rooms that make reasons."""
    for room in ("planner", "views", "observability"):
        for path in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                is_named = isinstance(node, ast.keyword) and node.arg == "variant"
                if isinstance(node, ast.keyword | ast.Assign) and (is_named or assigns(node)):
                    yield from texts(node.value)


def assigns(node: ast.AST) -> bool:
    targets = ast.walk(node.targets[0]) if isinstance(node, ast.Assign) else ()
    return any(isinstance(one, ast.Name) and one.id == "variant" for one in targets)


def texts(value: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may have as its value: `"a" if kind == "org" else "b"` has two."""
    if isinstance(value, ast.IfExp):
        yield from (*texts(value.body), *texts(value.orelse))
    elif isinstance(value, ast.Tuple):
        yield from (text for one in value.elts for text in texts(one))
    elif isinstance(value, ast.Constant) and value.value:
        yield str(value.value)


def test_the_variants_that_the_code_names_exist() -> None:
    """Else the message of such a reason could not be read."""
    known = {variant for code in CODES.values() for variant in code.entry.variants}
    named = set(variants())
    assert len(named) > 3
    assert named <= known
