"""deploy/prometheus/alertmanager.yaml routes every alert that `autoscaler alerts` prints."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model.reasons.entry import Severity

FOLDER = Path(__file__).parents[2] / "deploy" / "prometheus"
FILE = FOLDER / "alertmanager.yaml"
MATCHER = re.compile(r'(\w+)="(\w+)"')


@pytest.fixture(scope="module")
def configuration() -> Any:
    return yaml.safe_load(FILE.read_text())


def matched(matchers: list[str]) -> dict[str, str]:
    """Return the label values that a list of matchers asks for."""
    parsed = [MATCHER.fullmatch(one) for one in matchers]
    assert None not in parsed
    return {one[1]: one[2] for one in parsed if one is not None}


def rules() -> list[Any]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def test_each_severity_has_a_route_of_its_own(configuration: Any) -> None:
    routes = {
        matched(route["matchers"])["severity"]: route["receiver"]
        for route in configuration["route"]["routes"]
    }
    assert routes.keys() == {one.value for one in Severity}
    assert {rule["labels"]["severity"] for rule in rules()} <= routes.keys()
    assert len(set(routes.values())) == len(routes)
    receivers = {one["name"] for one in configuration["receivers"]}
    assert receivers == {*routes.values(), configuration["route"]["receiver"]}


def test_the_secrets_of_the_receivers_are_in_files_of_their_own(configuration: Any) -> None:
    settings = [one["slack_configs"] for one in configuration["receivers"]]
    files = [receiver["api_url_file"] for (receiver,) in settings]
    assert len(set(files)) == len(files)
    assert "hooks.slack.com" not in FILE.read_text()


def test_the_messages_have_what_the_rules_give(configuration: Any) -> None:
    annotations = {name for rule in rules() for name in rule["annotations"]}
    used = set(re.findall(r"Annotations\.(\w+)", FILE.read_text()))
    assert used == annotations


def test_a_page_silences_tickets_about_the_same_thing_alone(configuration: Any) -> None:
    (rule,) = configuration["inhibit_rules"]
    assert matched(rule["source_matchers"]) == {"severity": Severity.PAGE}
    assert matched(rule["target_matchers"]) == {"severity": Severity.TICKET}
    assert "alertname" in rule["equal"]
    assert set(configuration["route"]["group_by"]) == set(rule["equal"])
