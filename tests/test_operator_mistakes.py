"""What operators mistype or paste into the commands that call a controller: each mistake has its own words."""

import pytest

from tests.planner.fleets import catalogue, sku
from tests.test_operator_commands import Controller
from tests.test_operator_commands import controller as controller
from tests.test_operator_queries import waiting as waiting

NAME = "a" * 129
"""One character longer than any name."""


@pytest.mark.parametrize("command", [["jobs"], ["jobs", "--running"], ["machines"]])
def test_a_sku_that_does_not_exist_is_no_empty_list(
    waiting: Controller, command: list[str]
) -> None:
    result = waiting.run(*command, "--sku", "gpuu")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "no SKU is called gpuu: `autoscaler status --all` lists them\n"


def test_a_sku_that_left_fleet_yaml_is_known_while_it_has_machines(waiting: Controller) -> None:
    world = waiting.asked.world
    world.ledger.replace_catalogue(catalogue(sku("cpu")))
    assert waiting.run("machines", "--sku", "gpu").stdout.splitlines()[1].startswith("c0 ")


def test_a_state_that_no_machine_has_is_an_invalid_command_line(waiting: Controller) -> None:
    result = waiting.run("machines", "--state", "failedd")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith(
        "Error: Invalid value for '--state': 'failedd' is not one of 'requested', 'launched', 'booted', "
        "'ready', 'assigned', 'exited', 'terminating', 'terminated', 'failed', 'lost'.\n"
    )
    assert waiting.run("machines", "--state", "failed").exit_code == 0


@pytest.mark.parametrize(
    "given",
    [
        ["[self-hosted,", "gpu]"],
        ["[self-hosted, gpu]"],
        ['["self-hosted",', "'gpu']"],
        ["self-hosted,gpu"],
        ["self-hosted,", "gpu"],
    ],
)
def test_labels_may_be_pasted_from_runs_on(waiting: Controller, given: list[str]) -> None:
    said = waiting.run("explain", *given, "--repository", "acme/widgets").stdout
    assert said.startswith("A job of acme/widgets with the labels self-hosted, gpu runs on: gpu.")


@pytest.mark.parametrize("given", ["[]", "", ",", "[self-hosted, , gpu]"])
def test_an_empty_label_is_refused(waiting: Controller, given: str) -> None:
    result = waiting.run("explain", given, "--repository", "acme/widgets")
    assert result.exit_code == 2
    assert "a label is empty" in result.stderr


@pytest.mark.parametrize(
    ("given", "which"),
    [
        (["[self-hosted, gpu"], "closing"),
        (["[self-hosted,", "gpu"], "closing"),
        (["["], "closing"),
        (["self-hosted, gpu]"], "opening"),
        (["]"], "opening"),
    ],
)
def test_a_list_of_labels_without_a_bracket_is_refused(
    waiting: Controller, given: list[str], which: str
) -> None:
    result = waiting.run("explain", *given, "--repository", "acme/widgets")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"the list of labels has no {which} bracket" in result.stderr


@pytest.mark.parametrize("command", ["explain", "history"])
@pytest.mark.parametrize("start", ["", "https://github.com/acme/widgets/actions/runs/7/job/"])
def test_a_number_that_no_job_has_is_refused_in_the_user_s_words(
    waiting: Controller, command: str, start: str
) -> None:
    result = waiting.run(command, start + "9" * 19)
    assert (result.exit_code, result.stdout) == (2, "")
    words = " ".join(result.stderr.replace("│", " ").split())
    assert f"{'9' * 19} is not the number of a job: it has more than 18 digits" in words


@pytest.mark.parametrize("command", ["explain", "history"])
@pytest.mark.parametrize(
    "page",
    [
        "https://github.com/acme/widgets/actions/runs/7",
        "https://github.com/acme/widgets/actions/runs/7/attempts/2",
        "https://github.com/acme/widgets/pull/7",
    ],
)
def test_a_page_that_is_not_a_job_s_is_refused_with_the_form_of_a_job_s(
    waiting: Controller, command: str, page: str
) -> None:
    result = waiting.run(command, page)
    assert result.exit_code == 2
    words = " ".join(result.stderr.replace("│", " ").split())
    assert "is not the page of a job" in words
    assert "/actions/runs/RUN/job/JOB" in words


@pytest.mark.parametrize("command", ["terminate", "adopt", "retry", "history"])
@pytest.mark.parametrize(
    ("name", "words"),
    [("", "it is empty"), (NAME, "it is longer than 128 characters"), (" ", "it is empty")],
)
def test_a_name_that_no_record_can_have_is_refused_by_its_length(
    controller: Controller, command: str, name: str, words: str
) -> None:
    result = controller.run(command, name)
    assert result.exit_code == 2
    assert words in result.stderr
    assert controller.word.taken == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (
            ["terminate", "a b"],
            "MACHINE must be a machine's ID: `autoscaler machines` and `autoscaler unverified` list them",
        ),
        (
            ["adopt", "a/b"],
            "ID must be the ID of an installation: `autoscaler unverified` lists them",
        ),
        (
            ["retry", "a b"],
            "`target` must be all or the name of a SKU, provider or machine, perhaps after its kind and a /",
        ),
    ],
)
def test_a_name_with_characters_that_no_record_has_is_refused_by_its_meaning(
    controller: Controller, command: list[str], words: str
) -> None:
    result = controller.run(*command)
    assert (result.exit_code, result.stderr) == (1, f"{words}\n")


def test_a_request_that_is_too_long_to_be_read_is_explained(controller: Controller) -> None:
    result = controller.run("jobs", "--sku", "a" * 10_000)
    assert result.exit_code == 1
    assert "could not read the request: is a name or a label in it too long?" in result.stderr
