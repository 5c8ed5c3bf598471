"""The PowerShell of the user data and of the recipes of images has no syntax error.

Nothing here runs it. tests/windows parses the scripts that the agent writes on a Windows machine.
"""

from pathlib import Path

import pytest

from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.user_data import render_user_data
from tests.powershell import mistakes

TEXT = render_user_data(OperatingSystem.WINDOWS, "https://fleet.example", "us-east-1", "0" * 64)
SCRIPT = TEXT.removeprefix("<powershell>\n").removesuffix("</powershell>\n")


@pytest.mark.case(
    "Windows has `run.cmd`, and starts it in another way",
    topic="Runner and listener",
    source="GitHub: self-hosted runners",
)
def test_the_powershell_of_the_user_data_has_no_syntax_error() -> None:
    assert mistakes(SCRIPT) == []


RECIPES = Path(__file__).parents[2] / "ami"


def test_the_powershell_of_the_recipes_has_no_syntax_error() -> None:
    [script] = RECIPES.rglob("*.ps1")
    text = script.read_text()
    assert mistakes(text) == []
    assert mistakes(text.replace("} catch {", "} catch")) != []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(-not (Test-Genuine $agent)) {", "(-not (Test-Genuine $agent) {"),
        ("(Test-Path $file) -and", "(Test-Path $file) -and and"),
        ('\'@ | Set-Content -Encoding Ascii "$base\\fetch.py"', "@"),
        ("$python = 'C:\\runner-agent\\python\\python.exe'", "$python = 'C:\\runner-agent"),
        ('& shutdown.exe /s /f /t 0`""', '& shutdown.exe /s /f /t 0`"'),
        ("function Test-Genuine($file) {", "function Test-Genuine($file {"),
    ],
)
def test_a_syntax_error_is_found(right: str, wrong: str) -> None:
    assert right in SCRIPT
    assert mistakes(SCRIPT.replace(right, wrong)) != []
