"""checkov and tflint find nothing in the modules and examples, but for exceptions with a reason."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab.terraform.commands import copied
from lab.terraform.parts import find_python_program, find_tflint

PLANTED = """resource "aws_ebs_volume" "planted" {
  availability_zone = "us-east-1a"
  size              = 1
  encrypted         = false
}
"""


UNUSED = """variable "planted" {
  type        = string
  description = "Nothing uses it."
}
"""


def checkov(folder: Path, home: Path) -> dict[str, Any]:
    """Return what checkov found in a folder. Its exit status is 1 if a check fails."""
    program = find_python_program("checkov")
    command = [sys.executable, str(program / "bin" / "checkov"), "--directory", str(folder)]
    command += ["--framework", "terraform", "--output", "json", "--compact", "--skip-download"]
    done = subprocess.run(
        command,
        env={"PYTHONPATH": str(program), "HOME": str(home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["results"]
    return found


def test_checkov_finds_only_the_planted_mistake(tmp_path: Path) -> None:
    """The planted mistake shows that checkov reads the files."""
    folder = copied(tmp_path)
    (folder / "modules" / "planted").mkdir()
    (folder / "modules" / "planted" / "main.tf").write_text(PLANTED)
    found = checkov(folder, tmp_path)
    assert found["parsing_errors"] == []
    failed = {(one["check_id"], one["resource"]) for one in found["failed_checks"]}
    assert ("CKV_AWS_3", "aws_ebs_volume.planted") in failed
    assert [one for one in failed if one[1] != "aws_ebs_volume.planted"] == []
    # checkov's own words for a missing reason.
    reasons = {one["check_result"]["suppress_comment"] for one in found["skipped_checks"]}
    assert "No comment provided" not in reasons
    checked = {one["file_path"].split("/")[2] for one in found["passed_checks"]}
    assert checked >= {"controller", "images", "interruptions", "network", "runner"}


def test_tflint_finds_only_the_planted_mistake(tmp_path: Path) -> None:
    """The planted mistake shows that tflint reads the files in all folders."""
    folder = copied(tmp_path)
    (folder / "modules" / "runner" / "planted.tf").write_text(UNUSED)
    done = subprocess.run(
        [find_tflint(), "--recursive", "--config", folder / ".tflint.hcl", "--format", "json"],
        cwd=folder,
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["errors"] == []
    issues = [(one["rule"]["name"], one["range"]["filename"]) for one in found["issues"]]
    assert issues == [("terraform_unused_declarations", "modules/runner/planted.tf")]
