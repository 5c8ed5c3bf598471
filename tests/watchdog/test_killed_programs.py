"""Another program is killed while a test waits for it: the test fails in time and names the program."""

from pathlib import Path

import pytest

from tests.watchdog.test_watchdog import run


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a run of killed_programs.py printed."""
    file = Path(__file__).with_name("killed_programs.py")
    status, printed = run(tmp_path_factory.mktemp("killed"), file)
    assert status == 1, printed
    return printed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Its channel kills it again, and asyncio may then lose its status (python/cpython#87744).
        ("test_worker", ["WorkerEnded: the worker process ended"]),
        ("test_chromium", ["Target page, context or browser has been closed"]),
        (
            "test_moto",
            [
                "in forward",
                "had ended with status -9: ",
                "-m lab.ec2.moto_process",
            ],
        ),
        (
            "test_api_server",
            ["in request", "had ended with status ", "guard.sh ", "kube-apiserver "],
        ),
        (
            "test_program_of_the_tests",
            ["waited for more than 1 s", "await process.stdout.readline()", "sleep 1000"],
        ),
    ],
)
def test_the_failure_names_the_program(printed: str, name: str, expected: list[str]) -> None:
    _, found, after = printed.partition(f" {name} _")
    report = after.partition("\n_____")[0]
    assert found, printed
    assert [one for one in expected if one not in report] == [], report


def test_nothing_else_fails(printed: str) -> None:
    assert "5 failed in " in printed
