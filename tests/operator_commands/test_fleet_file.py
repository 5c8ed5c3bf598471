"""Where a command finds its fleet.yaml and its controller, and what it does without either."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from autoscaler.operator_commands.fleet_file import DEFAULT
from tests.command_line import run
from tests.server.certificates import make_certificate
from tests.test_operator_commands import TOKEN, Controller, fleet_file
from tests.test_operator_commands import controller as controller

NOWHERE = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory without a fleet.yaml, and an environment that names none."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("AUTOSCALER_CONFIG", "AUTOSCALER_URL", "AUTOSCALER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def token(tmp_path: Path) -> str:
    """The file of an operator's own token, which the controller knows."""
    file = tmp_path / "own-token"
    file.write_text(f"alice operate {TOKEN}\n")
    file.chmod(0o600)
    return str(file)


@pytest.mark.parametrize(
    "command",
    [
        ("serve",),
        ("check",),
        ("status",),
        ("terminate", "i-1"),
        ("plan", "--against", "new.yaml"),
        ("images", "shell", "gpu"),
    ],
)
def test_without_a_fleet_yaml_the_error_names_every_way_to_give_one(
    command: tuple[str, ...],
) -> None:
    result = run(*command)
    assert (result.exit_code, result.stdout) == (2, "")
    first, *more = result.stderr.splitlines()
    assert first == (
        "fleet.yaml: there is none in this folder, and neither the command line nor the environment names one; "
        "fix: name yours on the command line or in AUTOSCALER_CONFIG, or run the command in its folder"
    )
    talks = command[0] in ("status", "terminate", "plan")
    assert more == ["--url and --token-file together need no valid fleet.yaml"] * talks


def test_the_fleet_yaml_of_this_folder_is_the_default(
    controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(controller.file.parent)
    assert DEFAULT.exists()
    assert run("status").exit_code == 0
    assert run("check", "--skip-files").exit_code == 0


def test_the_environment_names_a_fleet_yaml_and_the_command_line_another(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong.yaml"
    monkeypatch.setenv("AUTOSCALER_CONFIG", str(controller.file))
    assert run("status").exit_code == 0
    assert run("check", "--skip-files").exit_code == 0
    monkeypatch.setenv("AUTOSCALER_CONFIG", str(wrong))
    assert f"{wrong}: cannot be read" in run("status").stderr
    assert f"{wrong}: cannot be read" in run("check").stderr
    assert run("status", "--config", controller.file).exit_code == 0
    assert run("check", "--skip-files", controller.file).exit_code == 0
    monkeypatch.setenv("AUTOSCALER_CONFIG", "")
    assert run("status").stderr.startswith("fleet.yaml: there is none")


def test_with_a_url_and_a_token_no_fleet_yaml_is_needed(
    controller: Controller, token: str, empty_folder: Path
) -> None:
    given = ("--url", controller.url, "--token-file", token)
    without = run("status", *given)
    assert (without.exit_code, without.stderr) == (0, "")
    # Not asked for: it may be of another fleet.
    (empty_folder / "fleet.yaml").write_text("fleet: [")
    beside = run("terminate", "i-1", *given)
    assert (beside.exit_code, beside.stderr) == (0, "")
    assert controller.word.taken == [("i-1", False)]


@pytest.mark.parametrize("content", [None, "fleet: [", "fleet: ci\n"])
def test_a_named_fleet_yaml_that_cannot_be_used_does_not_keep_an_operator_out(
    controller: Controller, token: str, tmp_path: Path, content: str | None
) -> None:
    broken = tmp_path / "broken.yaml"
    if content is not None:
        broken.write_text(content)
    refused = run("status", "--config", broken)
    assert refused.exit_code == 2
    assert refused.stderr.endswith("--url and --token-file together need no valid fleet.yaml\n")
    found = run("status", "--config", broken, "--url", controller.url, "--token-file", token)
    assert (found.exit_code, "nothing is wrong" in found.stdout) == (0, True)
    assert found.stderr.startswith(f"{broken}:")
    assert found.stderr.endswith("goes on without it, with --url and --token-file alone\n")


def test_a_problem_of_the_own_token_does_not_blame_fleet_yaml(controller: Controller) -> None:
    result = run("status", "--config", controller.file, "--token-file", "none")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert result.stderr.startswith("none: cannot be read")


def test_a_named_fleet_yaml_says_whether_the_url_may_be_http(tmp_path: Path, token: str) -> None:
    file = fleet_file(tmp_path, NOWHERE)
    given = ("--url", "http://controller.invalid", "--token-file", token)
    assert run("status", *given).exit_code == 2
    file.write_text(file.read_text().replace("server:\n", "server:\n  insecure: true\n"))
    allowed = run("status", *given, "--config", file)
    assert (allowed.exit_code, "does not answer" in allowed.stderr) == (1, True)


def test_a_certificate_of_an_unknown_ca_is_reported_with_where_to_name_the_ca(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = make_certificate(tmp_path)
    server = HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    given = ("--url", f"https://127.0.0.1:{server.server_port}", "--token-file", token)
    try:
        refused = run("status", *given)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
        trusted = run("status", *given)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert refused.exit_code == 1
    assert "name the CA of its certificate in server.tls.ca_file" in refused.stderr
    assert "SSL_CERT_FILE" in refused.stderr
    assert "answered 501" in trusted.stderr


def test_the_environment_names_the_controller_and_the_token(
    controller: Controller, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOSCALER_URL", controller.url)
    monkeypatch.setenv("AUTOSCALER_TOKEN_FILE", token)
    assert run("status").exit_code == 0
    elsewhere = run("status", "--url", NOWHERE)
    assert (elsewhere.exit_code, f"{NOWHERE} does not answer" in elsewhere.stderr) == (1, True)


def test_a_fleet_yaml_of_the_command_line_counts_before_the_url_of_the_environment(
    controller: Controller, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`drain -c staging.yaml` never drains the fleet that the environment names."""
    monkeypatch.setenv("AUTOSCALER_URL", controller.url)
    monkeypatch.setenv("AUTOSCALER_TOKEN_FILE", token)
    (tmp_path / "staging").mkdir()
    staging = fleet_file(tmp_path / "staging", NOWHERE)
    result = run("terminate", "i-1", "--config", staging)
    assert (result.exit_code, f"{NOWHERE} does not answer" in result.stderr) == (1, True)
    assert controller.word.taken == []
