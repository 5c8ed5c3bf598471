"""The Grafana dashboards: Prometheus parses every query, and its metrics and labels exist."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from dashboards.boards import BOARDS
from dashboards.grafana import as_json
from dashboards.panels import Board, Panel, Query, Style
from tests.observability.prometheus import promtool
from tests.observability.test_metrics import exported

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "grafana"
VARIABLES = {"$__rate_interval": "5m", "$__range": "6h", "$sku": "gpu"}
"""What Grafana puts in place of its variables."""

PROMETHEUS_LABELS = {"job", "instance", "alertname", "alertstate", "le"}
METRIC = re.compile(r"\b(?:autoscaler|process)_\w+")
LABELS_OF_SELECTOR = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
LABELS_OF_CLAUSE = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
LABELS_OF_LEGEND = re.compile(r"\{\{(\w+)\}\}")


def panels(board: Board) -> list[Panel]:
    return [panel for row in board.rows for panel in row.panels]


def queries() -> list[tuple[str, Query]]:
    return [
        (f"{board.uid}: {panel.title}", query)
        for board in BOARDS
        for panel in panels(board)
        for query in panel.queries
    ]


def expression(query: Query) -> str:
    text = query.expression
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    assert "$" not in text
    return text


def labels_of_samples() -> dict[str, frozenset[str]]:
    """Return the labels of every name that /metrics serves, which another test compares with the docs."""
    found: dict[str, frozenset[str]] = {}
    for name, (kind, labels) in exported().items():
        parts = ("_bucket", "_count", "_sum") if kind == "histogram" else ("",)
        found |= {name + part: labels for part in parts}
    return found


@pytest.mark.systems
def test_prometheus_parses_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": expression(query)}
        for number, (_, query) in enumerate(queries())
    ]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(
        [promtool(), "check", "rules", file], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_every_metric_of_a_query_is_exported() -> None:
    known = labels_of_samples()
    missing = {
        (place, name)
        for place, query in queries()
        for name in METRIC.findall(query.expression)
        if name not in known
    }
    assert not missing


def test_every_label_of_a_query_exists() -> None:
    known = labels_of_samples()
    for place, query in queries():
        used = set(LABELS_OF_SELECTOR.findall(query.expression))
        used |= set(LABELS_OF_LEGEND.findall(query.legend))
        for clause in LABELS_OF_CLAUSE.findall(query.expression):
            used |= {label.strip() for label in clause.split(",")} - {""}
        have = PROMETHEUS_LABELS.union(*(known[name] for name in METRIC.findall(query.expression)))
        assert used <= have, place


@pytest.mark.parametrize("board", BOARDS, ids=[board.uid for board in BOARDS])
def test_the_files_in_deploy_are_those_of_the_code(board: Board) -> None:
    file = FOLDER / f"{board.uid}.json"
    assert file.read_text() == as_json(board), "run `make dashboards`"


def test_deploy_has_no_other_dashboard() -> None:
    assert {file.stem for file in FOLDER.glob("*.json")} == {board.uid for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=[board.uid for board in BOARDS])
def test_a_dashboard_asks_the_source_that_its_reader_chooses(board: Board) -> None:
    content = json.loads(as_json(board))
    assert content["uid"] == board.uid
    assert content["templating"]["list"][0]["name"] == "datasource"
    shown = [panel for panel in content["panels"] if panel["type"] != "row"]
    assert [panel["title"] for panel in shown] == [panel.title for panel in panels(board)]
    assert {panel["datasource"]["uid"] for panel in shown} == {"${datasource}"}
    numbers = [panel["id"] for panel in content["panels"]]
    assert len(set(numbers)) == len(numbers)
    assert all(panel["description"] for panel in shown)


def test_only_boards_with_a_list_of_skus_use_it() -> None:
    for board in BOARDS:
        used = any("$sku" in query.expression for one in panels(board) for query in one.queries)
        names = [one["name"] for one in json.loads(as_json(board))["templating"]["list"]]
        assert used == board.by_sku == ("sku" in names), board.uid


def test_a_line_has_a_name_unless_it_is_alone() -> None:
    for board in BOARDS:
        for panel in panels(board):
            drawn = panel.style in {Style.LINES, Style.STACKED} and len(panel.queries) > 1
            assert not drawn or all(query.legend for query in panel.queries), panel.title
