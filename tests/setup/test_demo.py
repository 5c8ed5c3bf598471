"""`autoscaler init --demo`: the folder that it writes, and what it refuses."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.app.preflight import load_for_service
from autoscaler.cli import commands
from autoscaler.setup.demo import AWS, ENDPOINT, refuse_without_lab
from autoscaler.setup.github_app import NotFinishedError
from lab.ec2.identity import IdentitySigner


def init(folder: Path, *options: str) -> tuple[int, str]:
    answer = CliRunner().invoke(commands, ["init", str(folder), "--demo", *options])
    return answer.exit_code, " ".join(answer.output.split())


def test_the_folder_can_be_served_once_the_lab_runs(tmp_path: Path) -> None:
    folder = tmp_path / "a demo"
    status, said = init(folder)
    assert status == 0
    assert f"1. in a first terminal: autoscaler-lab '{folder}'" in said
    assert "2. wait until it says that GitHub and EC2 are up 3. in a second terminal: env" in said
    (folder / "identity.pem").write_bytes(IdentitySigner.generate().certificate_pem)
    configuration = load_for_service(folder / "fleet.yaml")
    assert configuration.warnings == ()
    server = configuration.settings.server
    assert server.listen.host == "127.0.0.1"
    assert (folder.stat().st_mode & 0o777) == 0o700
    assert (folder / "github-app.pem").stat().st_mode & 0o777 == 0o600


def test_the_three_servers_have_ports_of_their_own_which_stay(tmp_path: Path) -> None:
    init(tmp_path)
    settings = load_for_service(tmp_path / "fleet.yaml", files=False).settings
    variables = dict(line.split("=", 1) for line in (tmp_path / AWS).read_text().splitlines())
    assert len({settings.github.api_url, settings.server.public_url, variables[ENDPOINT]}) == 3
    before = {one: one.read_bytes() for one in tmp_path.iterdir()}
    status, said = init(tmp_path)
    assert (status, said[:5]) == (0, "Left ")
    assert before == {one: one.read_bytes() for one in tmp_path.iterdir()}


def test_a_stopped_run_is_finished_by_the_next(tmp_path: Path) -> None:
    init(tmp_path)
    key = (tmp_path / "github-app.pem").read_bytes()
    (tmp_path / "fleet.yaml").unlink()
    assert init(tmp_path)[0] == 0
    assert (tmp_path / "fleet.yaml").exists()
    assert (tmp_path / "github-app.pem").read_bytes() == key


def test_the_folder_of_another_fleet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").write_text("fleet: ci\n")
    status, said = init(tmp_path)
    assert (status, "name another folder" in said) == (1, True)
    assert [one.name for one in tmp_path.iterdir()] == ["fleet.yaml"]


@pytest.mark.parametrize(
    "options",
    [("--org", "acme"), ("--app-id", "5"), ("--app-name", "x"), ("--webhook", "https://h/webhook")],
)
def test_options_about_a_fleet_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    status, said = init(tmp_path / "demo", *options)
    assert (status, "takes no options about a fleet" in said) == (2, True)
    assert not (tmp_path / "demo").exists()


def test_a_missing_extra_is_named_with_the_command_that_brings_it() -> None:
    refuse_without_lab(("typer",))
    with pytest.raises(
        NotFinishedError, match=r"pipx install --force 'gpu-runner-autoscaler\[demo\]'"
    ):
        refuse_without_lab(("typer", "a_package_that_does_not_exist"))
