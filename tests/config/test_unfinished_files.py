"""Files that are not finished: templates, samples, empty values, and text that is not YAML."""

import pytest

from autoscaler.config import ConfigurationError
from tests.config.fleet_file import MINIMAL, Folder, changed, pods

TEMPLATE = "nothing in fleet.yaml is expanded"
BRACES = "neither ${...} nor {{...}} is expanded"

# The replaced text, its replacement; line, key, message and fix of the problem.
TEMPLATES = [
    (
        "org: acme",
        'org: "{{ .Values.org }}"',
        5,
        "github.scopes[0].org",
        "{{ .Values.org }}",
        TEMPLATE,
    ),
    ("org: acme", "org: $ORG", 5, "github.scopes[0].org", "$ORG", TEMPLATE),
    ("store: sqlite:///state.db", "store: ${STORE}", 9, "store", "${STORE}", TEMPLATE),
    (
        "region: us-east-1",
        "region: <region>",
        12,
        "providers.east.ec2.region",
        "<region>",
        TEMPLATE,
    ),
    ("org: acme", "org: {{ org }}", 5, "", "braces", BRACES),
    ("org: acme", "org: ${ORG}", 5, "", "braces", BRACES),
    ('"runner-*"', "“runner-*”", 16, "skus.gpu.image.name", "curly quote “", "straight quotes"),
]


@pytest.mark.parametrize(("old", "new", "line", "key", "what", "fix"), TEMPLATES)
def test_a_template_is_reported_as_one(
    folder: Folder, old: str, new: str, line: int, key: str, what: str, fix: str
) -> None:
    problem = folder.problem(changed((old, new)))
    assert (problem.line, problem.key) == (line, key)
    assert what in problem.what
    assert fix in problem.fix


def test_a_template_beside_a_secret_shows_no_secret(folder: Folder) -> None:
    problem = folder.problem(changed(("file: secret", "file: hunter2-${MORE}")))
    assert problem.what == 'contains "${MORE}", a template'


@pytest.mark.parametrize(
    ("key", "value"),
    [("tags", '{team: "${team}"}'), ("access", '{contact: "https://x/{{repo}}"}')],
)
def test_text_for_other_programs_may_contain_a_template(
    folder: Folder, key: str, value: str
) -> None:
    folder.load(MINIMAL + f"    {key}: {value}\n")
    env = 'pod: {image: i, overlay: {spec: {containers: [{name: runner, env: [{name: A, value: "${B}"}]}]}}}'
    folder.load(pods(("pod: {image: i}", env)))


# The replaced text, its replacement; line, key and fix of the problem.
EMPTY = [
    (
        "store:",
        "limits: {machines: }\nstore:",
        9,
        "limits.machines",
        "write one, or remove the key",
    ),
    (
        "store:",
        "limits: {dollars_per_hour: }\nstore:",
        9,
        "limits.dollars_per_hour",
        "write one, or remove the key",
    ),
    ("  gpu:\n", "  gpu:\n    max_machines:\n", 15, "skus.gpu.max_machines", "or remove the key"),
    ("  gpu:\n", "  gpu:\n    accelerator:\n", 15, "skus.gpu.accelerator", "or remove the key"),
    ("store:", "  tls:\nstore:", 9, "server.tls", "or remove the key"),
    (
        "apps: [{id: 1, private_key_file: app.pem}]",
        "apps:",
        3,
        "github.apps",
        "write one: it is required (The GitHub Apps",
    ),
    ("listen: 127.0.0.1:0", "listen:", 7, "server.listen", "write one: it is required"),
    (MINIMAL[MINIMAL.index("skus:") :], "skus:\n", 13, "skus", "write one: it is required"),
]


@pytest.mark.parametrize(("old", "new", "line", "key", "fix"), EMPTY)
def test_a_key_without_a_value_is_an_error(
    folder: Folder, old: str, new: str, line: int, key: str, fix: str
) -> None:
    problem = folder.problem(changed((old, new)))
    assert (problem.line, problem.key, problem.what) == (line, key, "has no value")
    assert fix in problem.fix


def test_null_in_an_overlay_removes_a_field(folder: Folder) -> None:
    folder.load(pods(("pod: {image: i}", "pod: {image: i, overlay: {spec: {nodeName: null}}}")))


SAMPLE = "is the sample value of the README"


def test_the_sample_values_of_the_readme_are_warnings(folder: Folder) -> None:
    text = changed(
        ("{id: 1,", "{id: 1234,"),
        ("http://127.0.0.1:8443", "https://fleet.example.com:8443"),
        ("[subnet-0a]", "[subnet-0123456789abcdef0]"),
        ("[sg-0a]", "[sg-0123456789abcdef0]"),
        ("store:", "  tls: {certificate_file: server.pem, key_file: server.key}\nstore:"),
    )
    found = [one for one in folder.load(text).warnings if one.what.endswith(SAMPLE)]
    assert {one.key for one in found} == {
        "github.apps[0].id",
        "github.scopes[0].org",
        "server.public_url",
        "providers.east.ec2.subnets[0]",
        "providers.east.ec2.security_groups[0]",
    }


def test_an_organization_may_be_called_acme_and_an_app_may_have_the_number_1234(
    folder: Folder,
) -> None:
    assert folder.load(changed(("{id: 1,", "{id: 1234,"))).warnings == ()


# The replaced text, its replacement; line, message and fix of the problem.
NOT_YAML = [
    ("fleet: ci", "fleet:ci", 1, "no space after the colon", "`key: value`"),
    ('"runner-*"', '"runner-*', 16, "a quote that is not closed", "close it"),
    ("[g5.xlarge]}]", "[g5.xlarge]}", 16, "what begins on line 15", "add the comma"),
    ('"runner-*"', "[*]", 16, "begins with *", "quotes"),
    ('{name: "runner-*"}', "{name: *runner}", 16, "no anchor above it", "in quotes"),
    ("    on:", "  on:", 16, "is indented otherwise", "like the line 14"),
    ("fleet: ci", "fleet: a: b", 1, "a value where none belongs", "in quotes"),
]


@pytest.mark.parametrize(("old", "new", "line", "what", "fix"), NOT_YAML)
def test_text_that_is_not_yaml_has_the_line_of_the_mistake(
    folder: Folder, old: str, new: str, line: int, what: str, fix: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        folder.load(changed((old, new)))
    (problem,) = caught.value.problems
    assert problem.line == line
    assert what in problem.what
    assert fix in problem.fix
