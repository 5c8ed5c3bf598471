"""`autoscaler status`, `jobs`, `machines`, `history` and `explain`, against an endpoint on loopback."""

import json
import re

import pytest

from autoscaler.controller.retention import ROWS_KEPT_FOR
from autoscaler.ledger.ledger import KEPT_FOR
from autoscaler.model import events as e
from autoscaler.model.accounting import MachineUse, Usage, day_of
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import MachineId, ProviderName, SkuName
from autoscaler.model.jobs.job import JobState
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.reasons.spells import FaultSpell
from autoscaler.model.wording import duration
from autoscaler.operator_commands.cost import By
from autoscaler.views.jobs.past import FailedTries, Past, WaitedFor
from autoscaler.views.spending import SpendingKey
from tests.ledger.builders import World, failure
from tests.planner.fleets import catalogue, sku
from tests.test_operator_commands import Controller
from tests.test_operator_commands import controller as controller


@pytest.fixture
def waiting(controller: Controller) -> Controller:
    """A controller with one job that gets a machine and one that is blocked."""
    known = World(catalogue(sku(max_machines=1), sku("cpu")), now=controller.asked.world.now)
    controller.asked.world = known
    known.queue(1, 2)
    known.launch(1)
    controller.asked.rows["2"] = [HistoryRow(1_700_000_000.0, "job", "2", "queued", "gpu\x1b[2J")]
    return controller


def test_status_shows_what_is_wrong_before_the_table(waiting: Controller) -> None:
    result = waiting.run("status")
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[1] == "2 waiting, 1 without a machine on its way; 0 running"
    assert lines[2] == "1 machine, $2.50 an hour"
    wrong = next(n for n, line in enumerate(lines) if line.startswith("max_machines"))
    table = next(n for n, line in enumerate(lines) if line.startswith("SKU "))
    assert "1 job waits: max_machines of gpu (1) is reached" in lines[wrong]
    assert wrong < table
    assert lines[-1] == "1 SKU has neither jobs nor machines: --all lists them"
    assert "cpu" in waiting.run("status", "--all").stdout


def test_a_fleet_without_trouble_says_so(controller: Controller) -> None:
    lines = controller.run("status").stdout.splitlines()
    assert (lines[1], lines[4]) == ("0 waiting; 0 running", "nothing is wrong")
    controller.asked.world.queue(1)
    controller.asked.world.launch(1)
    said = controller.run("status").stdout.splitlines()[1]
    assert said == "1 waiting, all with a machine on its way; 0 running"


def test_jobs_are_listed_with_their_place_and_reason(waiting: Controller) -> None:
    rows = waiting.run("jobs").stdout.splitlines()
    assert rows[0].split() == ["job", "SKU", "waits", "place", "why", "repository", "name"]
    assert rows[1].split()[:2] + rows[1].split()[3:] == [
        "1",
        "gpu",
        "1/2",
        "machine_booting",
        "acme/widgets",
    ]
    assert rows[2].split()[4] == "max_machines"
    first = waiting.run("jobs", "--limit", "1")
    assert len(first.stdout.splitlines()) == 2
    assert first.stderr == "1 of 2 jobs: --page and --limit show others\n"
    assert waiting.run("jobs").stderr == ""
    none = waiting.run("jobs", "--running")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "no job is running\n")


def test_lists_are_narrowed_and_in_pages(waiting: Controller) -> None:
    def ids(*words: str) -> list[str]:
        result = waiting.run(*words)
        assert result.exit_code == 0, result.output
        return [row.split()[0] for row in result.stdout.splitlines()[1:]]

    assert ids("jobs", "--limit", "1", "--page", "2") == ["2"]
    assert ids("jobs", "--reason", "max_machines") == ["2"]
    assert ids("jobs", "--repository", "acme/other") == []
    assert ids("jobs", "--older-than", "5") == []
    waiting.asked.world.now += 301.0
    assert ids("jobs", "--older-than", "5") == ["1", "2"]
    (provider,) = {one.provider for one in waiting.asked.world.state.machines.values()}
    assert ids("machines", "--provider", provider) == ["c0"]
    assert ids("machines", "--page", "2") == []
    refused = waiting.run("jobs", "--reason", "nothing")
    assert refused.exit_code == 1
    assert "`reason` must be a code of jobs that are waiting" in refused.stderr


def test_running_jobs_show_their_machines(waiting: Controller) -> None:
    world = waiting.asked.world
    world.starts(1, world.ready("r"))
    (_, row) = waiting.run("jobs", "--running").stdout.splitlines()
    assert row.split()[:2] + row.split()[3:] == ["1", "gpu", "r0", "acme/widgets"]


def test_machines_are_listed(waiting: Controller) -> None:
    (_, row) = waiting.run("machines", "--state", "launched").stdout.splitlines()
    assert row.split()[:3] == ["c0", "gpu", "launched"]
    world = waiting.asked.world
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), True, "controller, disk")
    (_, row) = waiting.run("machines", "--state", "ready").stdout.splitlines()
    assert row.endswith("checks passed: controller, disk")


@pytest.mark.parametrize("state", ["terminated", "failed", "lost"])
def test_ended_machines_are_listed_with_where_older_ones_are(
    waiting: Controller, state: str
) -> None:
    assert (KEPT_FOR, ROWS_KEPT_FOR) == (600.0, 4 * 86400.0)
    said = waiting.run("machines", "--state", state).stderr.splitlines()
    assert said == [
        "only machines that ended in the last 10 minutes; older ones: `autoscaler history ID`, with the ID "
        "of the machine or of its job, for 4 days",
        "no machine",
    ]
    assert waiting.run("machines").stderr == ""


def test_ages_count_by_the_controller_s_clock_and_not_by_this_host_s(waiting: Controller) -> None:
    world = waiting.asked.world
    world.now += 3600.0
    assert waiting.run("jobs").stdout.splitlines()[1].split()[2] == "1h00m"
    assert waiting.run("machines").stdout.splitlines()[1].split()[3] == "1h00m"
    assert "It has waited for 1h00m, number 2 of 2" in waiting.run("explain", "2").stdout
    runner = world.ready("r")
    world.observe(1, JobState.IN_PROGRESS, runner_name=runner, started_at=world.now)
    world.now += 60.0
    assert waiting.run("jobs", "--running").stdout.splitlines()[1].split()[2] == "1m00s"
    world.queue(3, labels=("cpu",))
    world.launch(1, "x", "cpu")
    said = waiting.run("explain", "3").stdout
    assert re.search(r"Next: a machine becomes ready .*, about .*Z \(in \d+m\d\ds\)\.", said)


@pytest.mark.parametrize(
    "name",
    [
        "2",
        "https://github.com/acme/widgets/actions/runs/7/job/2",
        "https://ghe.example/a/b/actions/runs/7/attempts/2/job/2",
    ],
)
def test_history_takes_the_number_of_a_job_and_its_page(waiting: Controller, name: str) -> None:
    result = waiting.run("history", name)
    assert result.exit_code == 0, result.stderr
    row = result.stdout.splitlines()[1]
    assert row.split() == ["2023-11-14", "22:13:20Z", "job", "2", "queued", "gpu?[2J"]


def test_the_history_of_faults_says_when_each_began_and_ended(waiting: Controller) -> None:
    waiting.asked.world.now = 1_700_000_060.0
    waiting.asked.spells = [
        FaultSpell("quota", "gpu", "the quota\x1b is used up", 1_700_000_000.0, jobs=7),
        FaultSpell("store_slow", "", "slow", 1_699_990_000.0, 1_699_990_300.0),
    ]
    _, lasts, ended = (
        line.split() for line in waiting.run("history", "faults").stdout.splitlines()
    )
    assert lasts[:7] == ["2023-11-14", "22:13:20Z", "lasts", "1m00s", "quota", "gpu", "7"]
    assert lasts[7:] == ["the", "quota?", "is", "used", "up"]
    assert ended[2:] == ["2023-11-14", "19:31:40Z", "5m00s", "store_slow", "slow"]
    assert json.loads(waiting.run("history", "faults", "--json").stdout)["faults"][0]["jobs"] == 7
    waiting.asked.spells = []
    none = waiting.run("history", "faults")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "no fault is recorded\n")


def test_costs_are_a_table_csv_and_json(waiting: Controller) -> None:
    day = day_of(waiting.asked.world.now)
    where = day, ProviderName("east"), SkuName("gpu")
    waiting.asked.used = [
        Usage(*where, "acme/widgets", MachineUse.JOB, 7200.0, 2001.5, 3),
        Usage(*where, "", MachineUse.FAILED_LAUNCH, 1800.0, 0.125, 2),
    ]
    table = waiting.run("cost", "--last", "7d")
    names, gpu, total = (line.split() for line in table.stdout.splitlines())
    assert names[:3] == ["sku", "dollars", "jobs"]
    numbers = ["2,001.62", "2,001.50", "0.00", "0.00", "0.00", "0.12", "2.5", "3", "2"]
    assert (gpu, total) == (["gpu", *numbers], ["total", *numbers])
    assert "in UTC" in table.stderr
    sheet = waiting.run("cost", "--csv", "--by", "repository", "--by", "provider")
    assert sheet.stdout.splitlines() == [
        "provider,repository,dollars,job,boot,ready,end,failed_launch,hours,jobs,failed_launches",
        "east,acme/widgets,2001.5,2001.5,0.0,0.0,0.0,0.0,2.0,3,0",
        "east,,0.125,0.0,0.0,0.0,0.0,0.125,0.5,0,2",
    ]
    by_repository = waiting.run("cost", "--by", "repository").stdout.splitlines()
    assert by_repository[2].startswith("no job ")
    waiting.asked.used = []
    none = waiting.run("cost")
    assert (none.exit_code, none.stdout) == (0, "")
    assert none.stderr.startswith("no machine's time has ended since ")


@pytest.mark.parametrize("last", ["0d", "94d", "30", "4w", "", "\u00b2d"])
def test_the_days_of_costs_are_checked_before_the_controller_is_asked(
    waiting: Controller, last: str
) -> None:
    result = waiting.run("cost", "--last", last)
    assert result.exit_code == 2
    assert "from 1d to 93d" in result.stderr


def test_costs_have_the_rows_that_the_controller_answers() -> None:
    assert list(map(str, By)) == list(map(str, SpendingKey))


def test_an_unknown_name_has_no_history(waiting: Controller) -> None:
    result = waiting.run("history", "i-0")
    assert (result.exit_code, result.stderr) == (1, "no history of i-0 is kept\n")


def test_a_waiting_job_is_explained_in_sentences(waiting: Controller) -> None:
    said = waiting.run("explain", "2").stdout
    assert "number 2 of 2 in line" in said
    assert "Why (max_machines): max_machines of gpu (1) is reached." in said
    assert "Next: a machine of the SKU ends, or an operator raises max_machines." in said
    assert "east/g5.xlarge/a/on-demand" in said
    assert "queued" in said.splitlines()[-1]
    booting = waiting.run("explain", "1").stdout
    assert "Next: a machine becomes ready (machine c0), about 2" in booting


def test_what_was_tried_has_the_provider_s_words_and_the_time(waiting: Controller) -> None:
    world = World(now=waiting.asked.world.now)
    world.queue(5)
    world.send(1)
    world.answer("c", failures=[failure(FailureClass.CAPACITY, message="No room in the zone.")])
    waiting.asked.world = world
    said = waiting.run("explain", "5").stdout
    (why, *_) = [line for line in said.splitlines() if line.startswith("Why (capacity): ")]
    assert why.endswith(": Code: No room in the zone.")
    assert "Next: the controller tries to launch a machine again, 2" in said
    row = next(line for line in said.splitlines() if line.startswith("gpu"))
    assert "Code: No room in the zone." in row
    assert row.rstrip().endswith("Z")


def test_labels_are_explained_for_a_repository(waiting: Controller) -> None:
    good = waiting.run("explain", "gpu", "self-hosted", "--repository", "acme/widgets").stdout
    assert "A job of acme/widgets with the labels gpu, self-hosted runs on: gpu." in good
    bad = waiting.run("explain", "gpuu", "--repository", "acme/widgets").stdout
    said = "no SKU has all of the labels gpuu; the label gpuu is close to gpu, which exists; "
    assert f"{said}the nearest SKU is gpu." in bad


def test_labels_are_explained_without_a_repository(waiting: Controller) -> None:
    good, hint, *_ = waiting.run("explain", "gpu").stdout.splitlines()
    assert good == "A job with the labels gpu runs on: gpu."
    assert hint.startswith("Give --repository OWNER/NAME to see whether github.scopes and access")
    (bad,) = waiting.run("explain", "gpuu").stdout.splitlines()
    assert "the label gpuu is close to gpu" in bad


def test_queued_jobs_that_no_sku_serves_are_listed_apart(waiting: Controller) -> None:
    assert waiting.run("jobs", "--unmatched").stderr == "no queued job is without a SKU\n"
    assert "without a SKU" not in waiting.run("status").stdout
    world = waiting.asked.world
    world.queue(7, 8, labels=("gpuu", "self-hosted"))
    said = "2 queued jobs without a SKU (labels: 2); see autoscaler jobs --unmatched"
    assert waiting.run("status").stdout.splitlines()[2] == said
    heads, first, second = waiting.run("jobs", "--unmatched").stdout.splitlines()
    assert heads.split() == ["job", "labels", "waits", "why", "repository", "name"]
    assert first.split() == ["7", "gpuu,", "self-hosted", "0s", "labels", "acme/widgets"]
    assert second.split()[0] == "8"
    assert "gpuu" not in waiting.run("jobs").stdout


@pytest.mark.parametrize("other", [["--running"], ["--sku", "gpu"]])
def test_jobs_without_a_sku_are_not_chosen_by_state_or_sku(
    waiting: Controller, other: list[str]
) -> None:
    refused = waiting.run("jobs", "--unmatched", *other)
    assert refused.exit_code == 2
    assert f"cannot be used with {other[0]}" in refused.stderr


def test_a_job_that_no_sku_serves_waits_with_the_reason(waiting: Controller) -> None:
    world = waiting.asked.world
    world.queue(3, labels=("gpuu",))
    why = "No machine will be launched for the labels gpuu: no SKU has all of the labels gpuu"
    (said,) = waiting.run("explain", "3").stdout.splitlines()
    assert said.startswith(why)
    wait = json.loads(waiting.run("explain", "3", "--json").stdout)["explanation"]["job"]["wait"]
    (reason,) = wait["reasons"]
    assert (wait["blocked"], reason["code"], reason["until"]) == (True, "labels", None)
    assert reason["message"] in said
    world.completes(3, labels=("gpuu",), conclusion="success", completed_at=world.now)
    lines = waiting.run("explain", "3").stdout.splitlines()
    assert lines[0].startswith(why)
    assert lines[1].startswith("It ended at 2")


def test_a_finished_job_is_explained(waiting: Controller) -> None:
    world = waiting.asked.world
    world.starts(1, world.ready("r"))
    assert "on machine r0." in waiting.run("explain", "1").stdout
    world.completes(1, conclusion="success", completed_at=world.now)
    assert "It ended at 2" in waiting.run("explain", "1").stdout
    why = WaitedFor("capacity", "none in the zone", 1.0, 301.0, 300.0)
    tries = FailedTries("gpu", "east/g5", "quota", "Limit: of 8", 2, 1.0, 200.0, "c1")
    waiting.asked.pasts[1] = Past((why,), (tries,))
    lines = waiting.run("explain", "1").stdout.splitlines()
    spell = lines[lines.index("What it waited for:") + 2]
    assert spell.split()[2:] == ["5m00s", "capacity", "none", "in", "the", "zone"]
    failed = lines[lines.index("Launches of its SKUs that failed while it waited:") + 2]
    assert failed.split()[2:] == ["2", "gpu", "east/g5", "quota:", "Limit:", "of", "8", "c1"]
    answer = json.loads(waiting.run("explain", "1", "--json").stdout)
    assert answer["past"]["failed_launches"][0]["count"] == 2
    waiting.asked.rows["7"] = [HistoryRow(1.0, "job", "7", "completed", "success")]
    said = waiting.run("explain", "7").stdout
    assert said.startswith("The job is over.")
    assert "completed" in said


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("status",), "faults"),
        (("jobs",), "jobs"),
        (("machines",), "machines"),
        (("history", "2"), "history"),
        (("explain", "2"), "explanation"),
        (("cost",), "total"),
    ],
)
def test_every_answer_can_be_had_as_json(
    waiting: Controller, arguments: tuple[str, ...], key: str
) -> None:
    assert key in json.loads(waiting.run(*arguments, "--json").stdout)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (-3, "0s"),
        (59.4, "59s"),
        (60, "1m00s"),
        (3599, "59m59s"),
        (12_060, "3h21m"),
        (100_000, "1d03h"),
    ],
)
def test_durations_have_their_two_largest_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
