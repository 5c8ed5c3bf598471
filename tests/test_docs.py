"""The documents are true: links, commands, the first configuration, and tables of the code."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import fields
from enum import StrEnum
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from autoscaler.cli import commands
from autoscaler.config import Configuration, load, not_in_force
from autoscaler.model.changes import INITIAL_STATES, TRANSITIONS, Record
from autoscaler.model.deliveries import DeliveryAnswer
from autoscaler.model.jobs.job import Admission, Job
from autoscaler.model.jobs.runner_group_excess import OUTSIDE_ACCESS_REASONS, Excess
from autoscaler.model.jobs.runners import Runner
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.machines.interruptions import Rerun
from autoscaler.model.machines.launch_requests import LaunchRequest
from autoscaler.model.machines.machine import ExitReason, Machine, MachineState, TerminationReason
from autoscaler.model.operators import HoldKind
from autoscaler.model.reasons.table import FaultCode, Unmatched, WaitCode
from autoscaler.providers.registry import provider_kinds
from autoscaler.setup.asking import Asking, Options, choose
from scripts.reason_docs import COMMAND, with_facts
from tests.config.fleet_file import unintended
from tests.observability.test_metrics import exported

ROOT = Path(__file__).parents[1]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
README = (ROOT / "README.md").read_text()
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RUNBOOKS = sorted({*(ROOT / "docs" / "runbooks").glob("*.md")} - {ROOT / "docs/runbooks/README.md"})
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"`([^`]+)`")
ARROW = re.compile(r"(\S+) --> (\S+)(?: : .+)?")
"""A line of a Mermaid state diagram: from, to."""

RECORDS: dict[str, type[Record]] = {
    "Job": Job,
    "Launch request": LaunchRequest,
    "Machine": Machine,
    "Runner": Runner,
    "Rerun": Rerun,
}
"""The headings of docs/architecture.md, and the records that they describe."""


def prose(path: Path) -> str:
    """A document without its blocks of code."""
    return CODE_BLOCK.sub("", path.read_text())


def anchors(path: Path) -> set[str]:
    """Return the anchors of the headings, and those that the page sets."""
    headings = (heading.lower() for heading in HEADING.findall(prose(path)))
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in headings} | set(
        ANCHOR.findall(prose(path))
    )


def section(text: str, title: str) -> str:
    """Return the text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def table(text: str, title: str) -> list[list[str]]:
    """The rows of the table under a heading, without its head."""
    rows = [line for line in section(text, title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_inside_the_project_have_targets(path: Path) -> None:
    broken = []
    for link in LINK.findall(prose(path)):
        if link.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_no_link_uses_plain_http(path: Path) -> None:
    assert [link for link in LINK.findall(prose(path)) if link.startswith("http:")] == []


def test_every_document_is_in_the_index() -> None:
    folder = ROOT / "docs"
    indexes = (folder / "README.md", folder / "runbooks" / "README.md")
    linked = {
        (index.parent / link).resolve()
        for index in indexes
        for link in LINK.findall(index.read_text())
    }
    assert {path for path in DOCUMENTS if path.parent != ROOT} - linked == {folder / "README.md"}


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_commands_that_are_named_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    blocks = [block for kind, block in CODE_BLOCK.findall(path.read_text()) if kind == "sh"]
    code = "\n".join([*WORD.findall(prose(path)), *blocks])
    assert set(re.findall(r"\bmake ([a-z-]+)\b", code)) <= targets
    known = {
        command.name or command.callback.__name__.replace("_", "-")
        for command in commands.registered_commands
        if command.callback is not None
    } | {group.name for group in commands.registered_groups}
    assert set(re.findall(r"(?<![-/\w])autoscaler ([a-z]+(?:-[a-z]+)*)", code)) <= known


@pytest.mark.parametrize("path", RUNBOOKS, ids=[path.stem for path in RUNBOOKS])
def test_the_commands_of_a_runbook_are_whole(path: Path) -> None:
    """On-call copies them: no required option or argument is missing, and every option exists."""
    for words in (code.split() for code in WORD.findall(prose(path))):
        if words[0] != "autoscaler":
            continue
        command, names = get_command(commands), words[1:]
        while isinstance(command, TyperGroup):
            command = command.commands[names.pop(0)]
        # Raises a UsageError for what the command line would refuse.
        command.make_context(command.name, names)


@pytest.mark.parametrize("path", RUNBOOKS, ids=[path.stem for path in RUNBOOKS])
def test_a_runbook_lists_machines_only_by_states_that_last(path: Path) -> None:
    """The plan after a failure terminates the machine, so a list of failed machines is empty."""
    lasting = set(MachineState) - {MachineState.FAILED}
    assert set(re.findall(r"--state (\w+)", prose(path))) <= lasting


def test_files_that_are_named_exist() -> None:
    """Paths in back quotes that name a file of the project."""
    named = {
        word
        for path in DOCUMENTS
        for word in WORD.findall(prose(path))
        if re.fullmatch(r"(autoscaler|tests|scripts|docs|examples|benchmarks)/[\w./-]+", word)
    }
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def readme_commands(name: str) -> list[list[str]]:
    """Return the arguments of each `autoscaler NAME` in the README's blocks of shell commands."""
    blocks = (block for kind, block in CODE_BLOCK.findall(README) if kind == "sh")
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    words = (shlex.split(line.removeprefix("sudo ")) for line in lines)
    return [found[2:] for found in words if found[:2] == ["autoscaler", name]]


def readme_fleet(arguments: list[str], file: Path) -> Configuration:
    """Write the fleet.yaml for a command line of `autoscaler init`, and return what it means."""
    group = get_command(commands)
    assert isinstance(group, TyperGroup)
    given = group.commands["init"].make_context("init", arguments).params
    plural = {
        "subnets": "subnet",
        "security_groups": "security_group",
        "repositories": "repository",
    }
    values = {one.name: given[plural.get(one.name, one.name)] for one in fields(Options)}
    values |= {name: tuple(values[name] or ()) for name in plural}
    options = Options(**values | {"public_url": "https://10.0.0.5:8443"})
    file.write_text(choose(options, Asking(accept=True)).text(1234))
    return load(file, provider_kinds(), files=False)


def test_the_fleets_of_the_readme_are_accepted_and_have_full_effect(tmp_path: Path) -> None:
    """One on EC2 and one on Kubernetes, without a webhook; the workflow asks for the label of each."""
    fleets = [readme_fleet(one, tmp_path / "fleet.yaml") for one in readme_commands("init")]
    kinds = [[one.kind for one in fleet.settings.providers.values()] for fleet in fleets]
    assert kinds == [["ec2"], ["kubernetes"]]
    for fleet in fleets:
        assert unintended(fleet) == []
        assert {one.key.partition("[")[0] for one in fleet.warnings} <= {
            "github.apps",
            "github.scopes",
            "providers.us-east-1.ec2.subnets",
            "providers.us-east-1.ec2.security_groups",
        }
        assert not_in_force(fleet.settings) == []
        assert fleet.settings.github.webhook == "none"
        assert fleet.settings.server.admin_token_file is not None
    (workflow,) = [block for kind, block in CODE_BLOCK.findall(README) if kind == "yaml"]
    on_ec2, on_kubernetes = (
        f"runs-on: [self-hosted, {next(iter(one.settings.skus))}]" for one in fleets
    )
    assert on_ec2 in workflow
    assert f"`{on_kubernetes}`" in README


def test_the_commands_of_the_readme_are_whole() -> None:
    group = get_command(commands)
    assert isinstance(group, TyperGroup)
    for name in ("init", "doctor", "install", "check", "serve", "status"):
        assert readme_commands(name), name
        for arguments in readme_commands(name):
            # Raises a UsageError for what the command line would refuse.
            group.commands[name].make_context(name, list(arguments))


def test_a_first_fleet_takes_at_most_twelve_commands() -> None:
    install = section(README, "A first fleet")
    released = install.partition("Nothing is released yet")[0]
    for way in ("On EC2", "On Kubernetes"):
        text = released + section(README, way)
        blocks = [block for kind, block in CODE_BLOCK.findall(text) if kind == "sh"]
        lines = "".join(blocks).replace("\\\n", " ").splitlines()
        assert 6 <= len(lines) <= 12, way


def test_webhook_listen_alone_faces_the_internet_in_every_example() -> None:
    """/metrics, /admin and the machines' endpoints are on `listen`: no example publishes its port."""
    files = [
        *(ROOT / "examples").glob("*.yaml"),
        *(ROOT / "deploy").rglob("fleet.yaml"),
    ]
    configured = [path for path in files if "\n  listen: " in path.read_text()]
    assert len(configured) >= 5
    assert [one for one in configured if "\n  webhook_listen: " not in one.read_text()] == []
    texts = [path.read_text() for path in (ROOT / "deploy").rglob("*.yaml")]
    routes = [text for text in texts if "\nkind: Ingress\n" in text]
    assert routes
    for route in routes:
        ingress = route.partition("\nkind: Ingress\n")[2].partition("\n---\n")[0]
        assert re.findall(r"port: \{name: (\w+)\}", ingress) == ["webhook"]


def test_the_load_balancers_of_the_examples_are_internal() -> None:
    internal = "service.beta.kubernetes.io/aws-load-balancer-scheme: internal"
    chart = ROOT / "deploy" / "helm" / "gpu-runner-autoscaler"
    balancers = [
        path
        for path in (ROOT / "deploy").rglob("*.yaml")
        if "\n  type: LoadBalancer\n" in path.read_text()
    ]
    assert len(balancers) == 2
    for path in balancers:
        # The chart's annotations are a value.
        settings = chart / "values.yaml" if path.is_relative_to(chart) else path
        assert internal in settings.read_text()


@pytest.mark.parametrize("record", RECORDS)
def test_the_tables_of_transitions_are_the_code_s(record: str) -> None:
    transitions = TRANSITIONS[RECORDS[record]]
    expected = [
        [f"`{state}`", ", ".join(f"`{to}`" for to in transitions if to in transitions[state])]
        for state in transitions
    ]
    assert table(ARCHITECTURE, record) == expected


@pytest.mark.parametrize("record", RECORDS)
def test_the_drawn_life_of_a_record_has_the_transitions_of_the_code(record: str) -> None:
    ((kind, drawing),) = CODE_BLOCK.findall(section(ARCHITECTURE, record))
    first, *lines = [line.strip() for line in drawing.splitlines()]
    assert (kind, first) == ("mermaid", "stateDiagram-v2")
    drawn = [ARROW.fullmatch(line) for line in lines]
    assert None not in drawn
    arrows = [(arrow[1], arrow[2]) for arrow in drawn if arrow is not None]
    table_of, initial = TRANSITIONS[RECORDS[record]], INITIAL_STATES[RECORDS[record]]
    begins = [("[*]", state.value) for state in table_of if state in initial]
    expected = [
        (state.value, to.value) for state in table_of for to in table_of if to in table_of[state]
    ]
    ends = [state.value for state in table_of if not table_of[state]] or ["terminated"]
    assert arrows == [*begins, *expected, *((end, "[*]") for end in ends)]


def test_the_records_of_the_documents_are_those_of_the_code() -> None:
    assert set(RECORDS.values()) == set(TRANSITIONS)
    rows = re.findall(r"^### (.+)$", ARCHITECTURE, re.MULTILINE)
    assert [row for row in rows if row in RECORDS] == list(RECORDS)


def test_every_room_is_drawn() -> None:
    drawn = [row[0].strip("`").rstrip("/") for row in table(ARCHITECTURE, "The rooms")]
    there = {
        path.name
        for path in (ROOT / "autoscaler").iterdir()
        if not path.name.startswith("_")
        and (path.suffix == ".py" or (path / "__init__.py").exists())
    }
    assert set(drawn) == there
    assert len(drawn) == len(there)


def test_the_order_of_the_rooms_is_that_of_the_import_contract() -> None:
    contract = (ROOT / ".importlinter").read_text()
    layers = contract.partition("\nlayers =\n")[2].partition("\nexhaustive")[0]
    block = CODE_BLOCK.findall(section(ARCHITECTURE, "The rooms"))[0][1]
    drawn = block.replace("blind to one another", "").partition("\n\n")[0]
    assert [line.split() for line in drawn.splitlines()] == [
        line.split() for line in layers.splitlines()
    ]


def test_all_ten_rules_name_existing_tests() -> None:
    rows = table(ARCHITECTURE, "The ten rules")
    assert [rule.partition(".")[0] for rule, _ in rows] == [str(n) for n in range(1, 11)]
    for rule, tests in rows:
        files = [ROOT / name for name in WORD.findall(tests)]
        assert files, rule
        assert [file for file in files if not file.is_file()] == []
        assert all(
            "def test_" in file.read_text() or "TestCase" in file.read_text() for file in files
        )


FAULTS = {code for code in FaultCode if code.entry.runbook is not None}
REASONS = (ROOT / "docs" / "runbooks" / "reasons.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def signs() -> set[str]:
    """Return what stands in back quotes in the first column of the tables of symptoms."""
    symptoms = OPERATIONS.partition("\n## A job waits\n")[2].partition("\n## Operators' tokens\n")
    assert symptoms[1]
    rows = symptoms[0].splitlines()
    cells = (row.strip("|").partition("|")[0] for row in rows if row.startswith("| `"))
    return {word for cell in cells for word in WORD.findall(cell)}


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("A job waits", set(WaitCode)),
        ("A launch fails", set(FailureClass)),
        ("A machine ends", set(TerminationReason)),
        ("A webhook is answered", set(DeliveryAnswer)),
        ("An operator's hold", set(HoldKind)),
        ("A job has no SKU", set(Unmatched)),
        ("A job ran outside `access`", set(OUTSIDE_ACCESS_REASONS)),
        ("A runner group is too wide", set(Excess)),
        ("A runner exits", set(ExitReason)),
        ("A fault of the fleet", FAULTS),
    ],
)
def test_each_reason_code_is_explained_under_its_heading(words: str, codes: set[str]) -> None:
    sections = REASONS.split("\n## ")[1:]
    explained = {text.partition("\n")[0] for text in sections if f"\n- **{words}:**" in text}
    assert explained == {str(code) for code in codes}


def test_the_headings_of_the_reason_codes_are_the_codes() -> None:
    lists = (*CODES_OF.values(), DeliveryAnswer, HoldKind, FAULTS)
    headings = HEADING.findall(REASONS)[1:]
    assert headings == sorted({str(code) for codes in lists for code in codes})


CODES_OF: dict[str, Iterable[str]] = {
    "autoscaler_jobs_waiting_by_reason": WaitCode,
    "autoscaler_jobs_without_sku": Unmatched,
    "autoscaler_jobs_unmatched_total": Unmatched,
    "autoscaler_jobs_refused_total": [one for one in Admission if one.is_refusal],
    "autoscaler_jobs_outside_access_total": OUTSIDE_ACCESS_REASONS,
    "autoscaler_launch_failures_total": FailureClass,
    "autoscaler_offerings_refused_total": FailureClass,
    "autoscaler_offerings_on_hold": FailureClass,
    "autoscaler_machines_terminated_total": TerminationReason,
    "autoscaler_runner_exits_total": ExitReason,
    "autoscaler_runner_group_too_wide": Excess,
}
"""By metric with a label `reason` or `code`: the values of the label."""


def test_the_reason_codes_of_every_metric_are_explained() -> None:
    """A new metric with such a label needs its codes here, and so a section for each of them."""
    labelled = {name for name, (_, labels) in exported().items() if labels & {"reason", "code"}}
    assert labelled == CODES_OF.keys()


def test_each_code_of_a_fault_has_a_meaning_of_its_own() -> None:
    """A section that only refers to the page of the alert says nothing."""
    found = re.findall(
        r"^- \*\*A fault of the fleet:\*\* (.*?)\n\n", REASONS, re.MULTILINE | re.DOTALL
    )
    meanings = [" ".join(one.split()).partition(" To do: ")[0] for one in found]
    assert len(meanings) > 15
    assert len(set(meanings)) == len(meanings)
    assert [one for one in meanings if "page of the alert" in one or len(one) < 40] == []


def test_the_facts_of_the_reason_codes_are_those_of_the_table() -> None:
    assert with_facts(REASONS) == REASONS, f"run `{COMMAND}`"


@pytest.mark.parametrize("codes", [FailureClass, TerminationReason, DeliveryAnswer])
def test_the_docstring_of_a_list_of_reason_codes_explains_each_code(codes: type[StrEnum]) -> None:
    explained = set(re.findall(r"[a-z_]+", codes.__doc__ or ""))
    assert {code.value for code in codes} - explained == set()


def test_the_metrics_and_log_events_in_operations_exist() -> None:
    code = "".join(path.read_text() for path in (ROOT / "autoscaler").rglob("*.py"))
    metrics = WORD.findall((ROOT / "docs" / "metrics.md").read_text())
    single = {sign.partition("{")[0] for sign in signs() if " " not in sign}
    assert len(single) > 10
    assert {sign for sign in single if sign.startswith("autoscaler_")} <= set(metrics)
    lines = {sign for sign in single if not sign.startswith("autoscaler_")}
    assert {line for line in lines if f'"{line}"' not in code} == set()


def test_the_files_in_where_to_look_exist() -> None:
    cells = [cell for row in table(ARCHITECTURE, "Where to look") for cell in row]
    named = [word for cell in cells for word in WORD.findall(cell) if word.endswith(".py")]
    assert len(named) > 20
    assert [name for name in named if not (ROOT / "autoscaler" / name).is_file()] == []


def test_the_ports_that_are_named_are_the_protocols() -> None:
    folder = ROOT / "autoscaler" / "controller" / "ports"
    code = "".join(path.read_text() for path in folder.glob("*.py"))
    text = section(ARCHITECTURE, "The rooms").partition("(a port) in")[2].partition("Each Protocol")
    assert text[1]
    ports = set(re.findall(r"^class (\w+)\(Protocol\)", code, re.MULTILINE))
    ports = {port for port in ports if not port.endswith("Telemetry")} | {"Telemetry"}
    assert set(WORD.findall(text[0])) - {"controller/ports/"} == ports
