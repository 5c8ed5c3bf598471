"""The whole text of what the commands print, in a pipe and on a terminal of 36 columns."""

import io
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from autoscaler.operator_commands import pages
from autoscaler.operator_commands.explanation import print_explanation
from autoscaler.operator_commands.pages import print_preview

Answer = dict[str, Any]
NOW = 1_700_000_000.0
WAIT: Answer = {
    "place": 2,
    "line": 3,
    "reasons": [
        {"code": "max_machines", "message": "max_machines of gpu (1) is reached"},
        {"code": "capacity", "message": "no room\x1b"},
    ],
}
JOB: Answer = {
    "id": 17,
    "sku": "gpu",
    "state": "queued",
    "labels": ["gpu", "self-hosted"],
    "repository": "acme/widgets",
    "workflow": "tests",
    "name": "cuda",
    "queued_at": NOW - 90,
    "started_at": None,
    "completed_at": None,
    "conclusion": "",
    "machine": None,
    "wait": WAIT,
}
SKU: Answer = {
    "sku": "gpu",
    "waiting": 2,
    "oldest": 90,
    "reasons": WAIT["reasons"],
    "circuit": None,
    "running": 3,
    "booting": 4,
    "ready": 5,
    "machines": 12,
    "max_machines": 24,
}
IDLE = SKU | {"sku": "cpu", "waiting": 0, "reasons": [], "running": 0, "machines": 0}
OPEN = IDLE | {"sku": "rocm", "circuit": {}, "machines": 1, "max_machines": None}
SEEN: Answer = {
    "fleet": "ci\x1b",
    "at": NOW,
    "waiting": 2,
    "blocked": 1,
    "running": 3,
    "unmatched": {"labels": 2, "access": 1},
    "machines": 12,
    "machines_limit": 4000,
    "dollars_per_hour": 1234.5,
    "dollars_limit": 9000,
    "faults": [
        {
            "code": "capacity",
            "about": "east InsufficientInstanceCapacity",
            "message": "no room in any zone of us-east-1",
            "skus": ["gpu"],
            "mend": "",
            "since": NOW - 90,
            "trend": "growing",
            "after": "",
            "recovered_at": None,
        }
    ],
    "skus": [SKU, OPEN, IDLE],
}
MACHINE: Answer = {
    "id": "9f86d081884c7d60",
    "sku": "gpu",
    "state": "ready",
    "since": NOW - 3600,
    "instance_type": "g5.xlarge",
    "zone": "use1-az1",
    "capacity_type": "spot",
    "provider_id": "i-0123456789abcdef0",
    "job": 17,
    "operator_hold": "",
    "unverified": "",
    "interruption": "",
    "reason": "",
    "stage": "checks passed",
}
NOTES = ("operator_hold", "unverified", "interruption", "reason")
PAST: Answer = {
    "waited_for": [
        {"begin": NOW, "end": NOW + 60, "seconds": 60, "code": "capacity", "message": "no room"},
        {"begin": NOW + 60, "end": None, "seconds": 5, "code": "quota", "message": "of 8"},
    ],
    "failed_launches": [
        {
            "last_at": NOW,
            "count": 2,
            "sku": "gpu",
            "where": "east/g5.xlarge",
            "code": "quota",
            "message": "Limit: of 8",
            "launch_request": "c1",
        }
    ],
}
ROW: Answer = {
    "at": NOW,
    "kind": "job",
    "record": "17",
    "event": "queued",
    "code": "capacity",
    "detail": "no room",
}
EXPLAINED: Answer = {
    "job": JOB,
    "labels": ["gpu", "self-hosted"],
    "unmatched": "",
    "skus": ["gpu", "rocm"],
    "repository": "acme/widgets",
    "next_event": {
        "what": "a machine becomes ready",
        "machine": "c0",
        "at": NOW + 100,
        "is_estimate": True,
    },
    "tried": [
        {
            "sku": "gpu",
            "offering": "east/g5.xlarge/a/spot",
            "dollars_per_hour": 1.0,
            "on_hold": "",
            "until": None,
        },
        {
            "sku": "gpu",
            "offering": "east/g6.xlarge/a/spot",
            "dollars_per_hour": 0.1234,
            "on_hold": "no room",
            "until": NOW,
        },
    ],
}
EXPLANATION: Answer = {"explanation": EXPLAINED, "at": NOW, "past": PAST, "history": [ROW]}
PREVIEW: Answer = {
    "changed": ["limits.machines"],
    "needs_restart": ["store"],
    "refused": ["fleet.yaml:1: is bad"],
    "preview": {
        "launches": [
            {
                "count": 2,
                "sku": "gpu",
                "provider": "east",
                "capacity_type": "on-demand",
                "dollars_per_hour": 1234.5,
            }
        ],
        "terminations": [{"machine": "c0", "sku": "gpu", "reason": "idle", "why": "idle for 60 s"}],
        "terminated": 300,
        "waiting": [
            {"count": 4, "sku": "gpu", "code": "max_machines", "message": "the limit is reached"}
        ],
        "without_sku": 1,
        "exceeded": ["limits.machines is 5, and the fleet has 11 machines"],
        "dollars_before": 1000,
        "dollars_after": 1150.5,
    },
}


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def printed(show: Callable[[], None], stdout: io.StringIO) -> str:
    with redirect_stdout(stdout):
        show()
    return "\n".join(line.rstrip() for line in stdout.getvalue().splitlines())


PAGES: dict[str, Callable[[], None]] = {
    "status": lambda: pages.print_status(SEEN, every=False),
    "waiting": lambda: pages.print_jobs({"jobs": [JOB], "at": NOW, "total": 1}, "waiting"),
    "running": lambda: pages.print_jobs(
        {
            "jobs": [JOB | {"machine": "c0", "started_at": NOW - 60, "wait": None}],
            "at": NOW,
            "total": 1,
        },
        "in_progress",
    ),
    "unmatched": lambda: pages.print_jobs({"jobs": [JOB], "at": NOW, "total": 1}, "unmatched"),
    "machines": lambda: pages.print_machines({"machines": [MACHINE], "at": NOW, "total": 1}),
    "history": lambda: pages.print_history([ROW, ROW | {"code": ""}]),
    "explanation": lambda: print_explanation(EXPLANATION),
    "preview": lambda: print_preview(PREVIEW),
}

EXPECTED = dict(
    re.findall(
        r"^##### (.*)\n((?:(?!#####).*\n)*)",
        Path(__file__).with_name("operator_pages.txt").read_text(),
        re.M,
    )
)
"""By name of a page and of where it goes."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_in_a_pipe_has_one_line_for_each_row(name: str) -> None:
    assert printed(PAGES[name], io.StringIO()) + "\n" == EXPECTED[f"{name}, piped"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_on_a_narrow_terminal_has_the_long_words_in_lines_of_their_own(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "36")
    assert printed(PAGES[name], Terminal()) + "\n" == EXPECTED[f"{name}, on a terminal"]


def test_a_page_that_fits_a_terminal_is_as_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    _, row = printed(PAGES["waiting"], io.StringIO()).splitlines()
    for width, lines in ((len(row), 2), (len(row) - 1, 4)):
        monkeypatch.setenv("COLUMNS", str(width))
        assert len(printed(PAGES["waiting"], Terminal()).splitlines()) == lines


def test_status_counts_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    def lines(**changed: object) -> list[str]:
        pages.print_status(SEEN | {"skus": [], "faults": []} | changed, every=False)
        return capsys.readouterr().out.splitlines()

    assert lines(blocked=0)[1] == "2 waiting, all with a machine on its way; 3 running"
    assert lines(blocked=0, waiting=0)[1] == "0 waiting; 3 running"
    assert lines(unmatched={})[2].startswith("12 of 4000 machines, ")
    assert lines(unmatched={"labels": 1})[2].startswith("1 queued job without a SKU (labels: 1);")
    assert lines(machines=1)[3].startswith("1 of 4000 machines, ")
    assert lines(machines=1, machines_limit=1)[3].startswith("1 of 1 machine, ")
    assert lines(machines=1, machines_limit=None)[3].startswith("1 machine, ")
    assert lines(machines=0, machines_limit=0)[3].startswith("0 of 0 machines, ")
    assert lines(dollars_limit=None)[3] == "12 of 4000 machines, $1,234.50 an hour"
    assert lines()[4:] == ["", "nothing is wrong"]
    assert lines(skus=[IDLE, IDLE])[6:] == [
        "2 SKUs have neither jobs nor machines: --all lists them"
    ]


@pytest.mark.parametrize("key", ["waiting", "running", "machines"])
def test_status_lists_a_sku_with_jobs_or_machines(
    key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pages.print_status(SEEN | {"skus": [IDLE | {key: 1}]}, every=False)
    assert capsys.readouterr().out.splitlines()[-1].startswith("cpu ")
    pages.print_status(SEEN | {"skus": [IDLE]}, every=True)
    assert capsys.readouterr().out.splitlines()[-1].startswith("cpu ")


def test_a_sku_with_a_reason_shows_it_and_not_its_circuit_breaker(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pages.print_status(SEEN | {"skus": [SKU | {"circuit": {}}]}, every=False)
    assert capsys.readouterr().out.splitlines()[-1].split()[3] == "max_machines"


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ("waiting", "no job waits"),
        ("in_progress", "no job is running"),
        ("unmatched", "no queued job is without a SKU"),
    ],
)
def test_an_empty_list_says_so(state: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    pages.print_jobs({"jobs": [], "at": NOW, "total": 0}, state)
    assert capsys.readouterr() == ("", f"{why}\n")
    pages.print_machines({"machines": [], "at": NOW, "total": 0})
    assert capsys.readouterr() == ("", "no machine\n")


def test_a_running_job_without_its_start_counts_from_the_queue(
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = JOB | {"wait": WAIT | {"line": 0}, "workflow": ""}
    pages.print_jobs({"jobs": [job], "at": NOW, "total": 1}, "in_progress")
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "17", "gpu", "1m30s", "acme/widgets", "cuda"
    ]  # fmt: skip
    pages.print_jobs({"jobs": [job], "at": NOW, "total": 1}, "waiting")
    assert capsys.readouterr().out.splitlines()[1].split()[3] == "max_machines"


def test_the_note_of_a_machine_is_the_first_of_its_reasons(
    capsys: pytest.CaptureFixture[str],
) -> None:
    machine = MACHINE | {"provider_id": None, "job": None, "zone": ""}
    for key in reversed(NOTES):
        machine |= {key: f"by {key}"}
        pages.print_machines({"machines": [machine], "at": NOW, "total": 1})
        row = capsys.readouterr().out.splitlines()[1]
        assert row.split() == [
            MACHINE["id"],
            "gpu",
            "ready",
            "1h00m",
            "g5.xlarge",
            "spot",
            "by",
            key,
        ]


def said(**changed: object) -> list[str]:
    with redirect_stdout(io.StringIO()) as shown:
        past: dict[str, list[object]] = {"waited_for": [], "failed_launches": []}
        explained = EXPLAINED | {"tried": []} | changed
        print_explanation({"explanation": explained, "at": NOW, "past": past, "history": []})
    return shown.getvalue().splitlines()


ENDED = {"state": "completed", "completed_at": NOW, "conclusion": "success", "machine": "c0"}
STARTED = {"state": "in_progress", "started_at": NOW, "machine": "c0"}
EVENT = EXPLAINED["next_event"]


@pytest.mark.parametrize(
    ("changed", "last"),
    [
        (ENDED, "It ended at 2023-11-14 22:13:20Z: success on machine c0."),
        (ENDED | {"completed_at": None, "machine": None}, "It ended: success."),
        (STARTED, "It has run since 2023-11-14 22:13:20Z on machine c0."),
        (STARTED | {"started_at": None, "machine": None}, "It runs."),
        ({"state": "pending"}, "GitHub reports it as pending, so it does not need a machine yet."),
    ],
)
def test_a_job_that_does_not_wait_says_where_it_is(changed: Answer, last: str) -> None:
    job = JOB | {"wait": None} | changed
    first = "Job 17 of acme/widgets (tests / cuda) runs on: gpu, rocm."
    assert said(job=job) == [first, last]
    why = "No machine will be launched for the labels gpu, self-hosted: no SKU has them."
    assert said(job=job, unmatched="no SKU has them") == [
        why,
        *([last] if "pending" not in last else []),
    ]


@pytest.mark.parametrize(
    ("changed", "last"),
    [
        (
            EVENT,
            "Next: a machine becomes ready (machine c0), about 2023-11-14 22:15:00Z (in 1m40s).",
        ),
        (
            EVENT | {"is_estimate": False, "at": NOW, "machine": None},
            "Next: a machine becomes ready, 2023-11-14 22:13:20Z (now).",
        ),
        (
            EVENT | {"at": None},
            "Next: a machine becomes ready (machine c0). The time is not known.",
        ),
    ],
)
def test_the_next_event_has_its_time(changed: Answer, last: str) -> None:
    assert said(next_event=changed)[-1] == last


def test_labels_are_explained_without_a_job() -> None:
    assert said(job=None) == [
        "A job of acme/widgets with the labels gpu, self-hosted runs on: gpu, rocm."
    ]
    assert said(job=None, repository="") == [
        "A job with the labels gpu, self-hosted runs on: gpu, rocm.",
        "Give --repository OWNER/NAME to see whether github.scopes and access admit it.",
    ]
    unnamed = JOB | {"workflow": "", "name": "", "wait": WAIT | {"line": 0}}
    lines = said(job=unnamed)
    assert lines[0] == "Job 17 of acme/widgets runs on: gpu, rocm."
    assert lines[1] == "It has waited for 1m30s."


def test_a_job_that_is_over_shows_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    print_explanation(EXPLANATION | {"explanation": None, "history": []})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == [
        "The job is over. This is what is kept of it:",
        "",
        "What it waited for:",
    ]
    assert lines[-1].split()[-1] == "c1"


def test_a_plan_without_effect_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    nothing: Answer = {
        "launches": [],
        "terminations": [],
        "terminated": 0,
        "waiting": [],
        "exceeded": [],
    }
    seen = PREVIEW["preview"] | nothing | {"without_sku": 0}
    print_preview({"changed": [], "needs_restart": [], "refused": [], "preview": seen})
    assert capsys.readouterr().out.splitlines() == [
        "no changed key affects this plan",
        "",
        "no machine would be launched",
        "no machine would be terminated",
        "",
        "cost at on-demand prices: $1,000.00 an hour now, $1,150.50 after this plan",
    ]
    print_preview(PREVIEW | {"preview": PREVIEW["preview"] | {"without_sku": 2, "terminated": 1}})
    lines = capsys.readouterr().out.splitlines()
    assert "2 queued jobs would have no SKU" in lines
    assert not any("more" in line for line in lines)
