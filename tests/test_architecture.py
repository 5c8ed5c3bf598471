"""The rooms import only what docs/architecture.md allows, and the checks of that find violations."""

import ast
import configparser
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"
RUFF = Path(sys.executable).parent / "ruff"


class Plant(NamedTuple):
    """Lines added to files of a copy, which one contract must find."""

    contract: str
    lines: dict[str, str]


PLANTS = {
    "an import upwards": Plant("rooms", {"model/plan.py": "import autoscaler.planner.planner"}),
    "an import between two rooms of one floor": Plant(
        "rooms", {"github/timestamps.py": "import autoscaler.store.codec"}
    ),
    "an import upwards inside a function": Plant(
        "rooms",
        {"ledger/holds.py": "def late() -> None:\n    import autoscaler.controller.reconciler"},
    ),
    "a room that no contract names": Plant("rooms", {"helpers/__init__.py": ""}),
    "the agent using ours": Plant(
        "agent-imports-nothing", {"agent/clock.py": "import autoscaler.model.plan"}
    ),
    "ours using the agent": Plant(
        "agent-imported-by-none", {"server/answers.py": "import autoscaler.agent.clock"}
    ),
    "one provider using another": Plant(
        "providers",
        {
            "providers/second/__init__.py": "",
            "providers/ec2/tags.py": "import autoscaler.providers.second",
        },
    ),
    "a provider's class in the composition root": Plant(
        "provider-folders", {"app/parts.py": "import autoscaler.providers.ec2.provider"}
    ),
    "fleet.yaml read by the server": Plant(
        "configuration", {"server/answers.py": "import autoscaler.config.reading.document"}
    ),
    "a circle between two modules": Plant(
        "circles",
        {
            "planner/one.py": "import autoscaler.planner.two",
            "planner/two.py": "import autoscaler.planner.one",
        },
    ),
    "a circle between two rooms": Plant(
        "circles", {"ledger/holds.py": "import autoscaler.controller.reconciler"}
    ),
    "a clock in the planner": Plant("pure", {"planner/scale_down.py": "import time"}),
    "files in the ledger": Plant("pure", {"ledger/machines/lists.py": "from pathlib import Path"}),
    "chance in the model": Plant("pure", {"model/jobs/job.py": "from random import choice"}),
    "pydantic in the controller": Plant(
        "controller", {"controller/github/single_reads.py": "import pydantic"}
    ),
    "boto3 in the store": Plant("aws", {"store/codec.py": "import boto3.session"}),
    "gidgethub in the server": Plant("gidgethub", {"server/answers.py": "import gidgethub"}),
    "sqlite3 at GitHub": Plant("database", {"github/apps/targets.py": "import sqlite3"}),
    "metrics in the controller": Plant(
        "metrics",
        {"controller/reporting/history_metrics.py": "from prometheus_client import Counter"},
    ),
    "traces in the controller": Plant(
        "traces",
        {
            "controller/reporting/history_metrics.py": "from opentelemetry.sdk.trace import TracerProvider"
        },
    ),
    "moto in a provider": Plant("moto", {"providers/ec2/tags.py": "import moto"}),
    "the laboratory in the product": Plant("lab", {"app/running.py": "import lab.demo"}),
    "a clock in the console": Plant("console", {"console/charts.py": "import time"}),
    "HTML in the server": Plant("templates", {"server/answers.py": "import jinja2"}),
    "kubernetes outside its room": Plant(
        "kubernetes", {"config/files.py": "import kubernetes.client"}
    ),
}


def contracts() -> set[str]:
    """The identifiers of all contracts."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / ".importlinter")
    return {name.rpartition(":")[2] for name in parser.sections() if ":" in name}


def lint_imports(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Check the contracts of the package in `folder`."""
    return subprocess.run(
        [LINT_IMPORTS, "--no-logo", "--no-cache", *arguments],
        check=False,
        cwd=folder,
        capture_output=True,
        text=True,
    )


def copy_of_the_package(folder: Path) -> Path:
    shutil.copyfile(ROOT / ".importlinter", folder / ".importlinter")
    for source in [*(ROOT / "autoscaler").rglob("*.py"), *(ROOT / "lab").rglob("*.py")]:
        target = folder / source.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return folder


def plant(folder: Path, lines: dict[str, str]) -> None:
    for name, text in lines.items():
        path = folder / "autoscaler" / name
        path.parent.mkdir(exist_ok=True)
        with path.open("a") as file:
            file.write(f"\n{text}\n")


def test_the_import_contracts_hold() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {len(contracts())} kept, 0 broken." in done.stdout


@pytest.mark.parametrize("planted", PLANTS.values(), ids=PLANTS)
def test_a_planted_import_breaks_its_contract(planted: Plant, tmp_path: Path) -> None:
    plant(copy_of_the_package(tmp_path), planted.lines)
    done = lint_imports(tmp_path, "--contract", planted.contract)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Contracts: 0 kept, 1 broken." in done.stdout


def test_every_contract_has_a_planted_violation() -> None:
    assert {planted.contract for planted in PLANTS.values()} == contracts()


def ruff(file: str, text: str) -> str:
    """What Ruff finds in a module of this name."""
    named = ("--stdin-filename", file)
    done = subprocess.run(
        [RUFF, "check", "--quiet", "--output-format=concise", "--select=TID", *named, "-"],
        check=False,
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("room", ["model", "ledger", "planner", "views", "console"])
@pytest.mark.parametrize(
    "text",
    [
        "from datetime import UTC, datetime\nAT = datetime.now(UTC)\n",
        "import datetime\nAT = datetime.date.today()\n",
        "import time\nAT = time.time()\n",
        "from random import random\nCHANCE = random()\n",
        "from uuid import uuid4\nID = uuid4()\n",
        "import os\nHOME = os.environ['HOME']\n",
        "from unittest.mock import patch\n",
        "from .plan import plan\n",
    ],
)
def test_the_pure_rooms_use_no_clock_and_no_random_numbers(room: str, text: str) -> None:
    assert "TID25" in ruff(f"autoscaler/{room}/planted.py", text)


def test_the_pure_rooms_may_convert_a_given_time_to_a_date() -> None:
    text = "from datetime import UTC, datetime\nAT = datetime.fromtimestamp(0, tz=UTC)\n"
    assert ruff("autoscaler/planner/planted.py", text) == ""


def assigned(source: str, attribute: str) -> list[str]:
    """Return what is assigned to this attribute of anything but `self`, as it is written."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign):
            targets = [one for target in node.targets for one in ast.walk(target)]
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        else:
            continue
        written = (one for one in targets if isinstance(one, ast.Attribute))
        found += [
            ast.unparse(one)
            for one in written
            if one.attr == attribute and ast.unparse(one.value) != "self"
        ]
    return found


def assigned_by_file(attribute: str) -> dict[str, list[str]]:
    """Return what is assigned to this attribute in the product, by file."""
    return {
        path.relative_to(ROOT / "autoscaler").as_posix(): found
        for room in ("app", "controller", "ledger", "model", "planner", "store")
        for path in sorted((ROOT / "autoscaler" / room).rglob("*.py"))
        if (found := assigned(path.read_text(), attribute))
    }


def test_only_one_function_assigns_the_state_of_a_record() -> None:
    """`LedgerState.enter` looks into the record's table. `changing` takes other assignments back."""
    assert assigned_by_file("state") == {
        "ledger/records/state.py": ["record.state", "record.state"]
    }
    written = "job.state, job.at = s, 1\nself.state = s\nx = job.state"
    assert assigned(written, "state") == ["job.state"]


def test_only_one_module_makes_machines_unverified_or_verified() -> None:
    """Every rule about this state is in `ledger/machines/unverified.py`."""
    assert set(assigned_by_file("unverified")) == {"ledger/machines/unverified.py"}
