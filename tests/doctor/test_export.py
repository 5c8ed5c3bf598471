"""The files of `autoscaler doctor --export` have no secrets."""

import sys
from pathlib import Path

from autoscaler.doctor.export import controller_log, without_secrets
from tests.config.fleet_file import EXAMPLE

TEXT = """
# the password is hunter2
github: {webhook_secret_file: webhook-secret}
overlay:
  env:
  - {name: TOKEN, value: hunter2}
  - name: OTHER
    value: |
      hunter2
      and more
  password: hunter2
  image: https://user:hunter2@registry.example/runner
"""


def test_a_fleet_file_keeps_its_structure_without_comments_and_secret_values() -> None:
    found = without_secrets(TEXT)
    assert "hunter2" not in found
    assert "webhook_secret_file: webhook-secret" in found
    assert found.count("[redacted]") == 4


def test_the_example_can_be_exported() -> None:
    assert "fleet: ci-gpu" in without_secrets(EXAMPLE.read_text())


def test_a_host_without_a_log_says_so() -> None:
    assert controller_log(("no-such-journalctl",)).startswith("no log: no-such-journalctl: ")
    failing = (sys.executable, "-c", "raise SystemExit('no journal here')")
    assert controller_log(failing) == f"no log: {sys.executable}: no journal here\n\n"


def test_the_log_is_the_output_of_the_command(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("line\n")
    assert controller_log(("cat", str(file))) == "line\n"
