"""What `make fuzz` prints, writes, and leaves behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.campaign import Campaign
from tests.fuzz.mutations import mutated, mutated_text
from tests.fuzz.target import CHUNK, Finding, Tried
from tests.patience import PATIENCE

pytestmark = pytest.mark.systems

ROOT = Path(__file__).parents[2]


def test_a_campaign_prints_its_seed_rate_and_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["identity", "--seed", "7", "--count", "1200", "--processes", "1"]
    assert main([*given, "--folder", str(tmp_path / "found")]) == 0
    printed = capsys.readouterr().out
    assert "make fuzz ARGS='--seed 7'" in printed
    assert re.search(r"identity: 1,500 tried in \d+ s \([\d,]+/s\), 0 found, seed 7", printed)
    assert not (tmp_path / "found").exists()


def finds(name: str, seed: int, chunk: int) -> Tried:
    """Stands in for a chunk in which something is wrong."""
    found = [Finding("0\x03\x02\xff", "because")] if chunk == 1 else []
    return Tried(chunk, CHUNK, found)


def dies(name: str, seed: int, chunk: int) -> Tried:
    """Stands in for a chunk that crashes the interpreter."""
    if chunk == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return Tried(chunk, CHUNK, [])


def test_a_finding_is_written_to_a_file_that_shows_it_again(tmp_path: Path) -> None:
    lines: list[str] = []
    folder = tmp_path / "found"
    campaign = Campaign("identity", 7, 3 * CHUNK, folder, 1, lines.append, finds)
    assert not campaign.run()
    (path,) = campaign.saved
    assert path.parent == folder
    assert json.loads(path.read_text()) == "0\x03\x02\xff"
    printed = [line for line in lines if "identity: " not in line[:10]]
    assert printed == [
        "FOUND in identity: because",
        f"  again: .venv/bin/python -m tests.fuzz identity --input {path}",
    ]
    assert "1,500 tried" in lines[-1]
    assert "1 found" in lines[-1]


def test_a_process_that_dies_is_a_finding(tmp_path: Path) -> None:
    lines: list[str] = []
    campaign = Campaign("identity", 7, 3 * CHUNK, tmp_path, 1, lines.append, dies)
    assert not campaign.run()
    again = ".venv/bin/python -m tests.fuzz identity --seed 7 --chunk 2"
    assert f"a process died in or near: {again}" in lines


@pytest.mark.parametrize(
    ("name", "given", "status"),
    [
        ("identity", "0\x80", 0),
        ("bootstrap", [{"do": "turn"}], 0),
        # As if GitHub had sent a body with no signature at all: that one is always found.
        ("webhook", {"headers": [], "body": "{}", "github": [], "real": True}, 1),
    ],
)
def test_the_fuzzer_replays_one_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, given: object, status: int
) -> None:
    path = tmp_path / "input.json"
    path.write_text(json.dumps(given))
    assert main([name, "--input", str(path)]) == status
    assert f"{name}: {status} found" in capsys.readouterr().out


def test_the_fuzzer_replays_one_chunk(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["identity", "--seed", "7", "--chunk", "3"]) == 0
    assert "identity: 0 found" in capsys.readouterr().out


def test_ctrl_c_prints_what_was_done_and_leaves_no_process() -> None:
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz", "identity", "--seed", "7", "--processes", "1"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        start_new_session=True,
    )
    assert started.stdout is not None
    assert started.stdout.readline().startswith("seed 7")
    assert " of 1,000,000, " in started.stdout.readline()
    os.killpg(started.pid, signal.SIGINT)
    rest = started.communicate(timeout=PATIENCE)[0]
    assert started.returncode == 130
    assert re.search(r"identity: [\d,]+ tried in", rest)
    assert rest.endswith("interrupted\n")
    assert not is_there_after(PATIENCE, started.pid)


def is_there_after(patience: float, group: int) -> bool:
    """Whether any process of a group is; the interpreter's own helper goes a moment late."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.01)
    return True


def test_mutations_are_many_and_drawn_from_their_generator_alone() -> None:
    rng, data = Random(1), bytes(range(64))
    changed = [mutated(rng, data) for _ in range(500)]
    assert sum(one != data for one in changed) > 450
    assert len({len(one) for one in changed}) > 50
    assert mutated(Random(5), data) == mutated(Random(5), data)
    assert len(mutated(Random(5), b"")) < 50
    assert len({mutated_text(rng, "Bearer abc") for _ in range(50)}) > 40
