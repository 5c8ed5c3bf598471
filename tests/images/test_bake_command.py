"""`autoscaler images bake` where no image comes out. tests/ami builds one with the real Packer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.config import ConfigurationError
from autoscaler.config.settings.sku import AcceleratorVendor
from autoscaler.images.baking import MACHINE_RECIPES, find_recipe, template_values
from autoscaler.images.driver import driver_plan
from autoscaler.images.load import load_versions
from autoscaler.model.catalogue import Architecture, OperatingSystem
from tests.images.versions import SUM, changed, written
from tests.patience import PATIENCE
from tests.python_programs import first_line, old_packer

pytestmark = pytest.mark.systems

# Tests that run under `nohup` or in the background of a shell pass on ignored signals.
MAIN = (
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    "signal.signal(signal.SIGINT, signal.SIG_DFL); from autoscaler.cli import main; main()"
)
ROOT = Path(__file__).parents[2]
WORDS = ["--region", "us-east-1", "--subnet", "subnet-0a"]


def bake(path: Path, *words: str | Path) -> subprocess.Popen[str]:
    """Start the command with the programs of one folder."""
    return subprocess.Popen(
        [sys.executable, "-c", MAIN, "images", "bake", *map(str, words), *WORDS],
        cwd=ROOT,
        env={**os.environ, "PATH": str(path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["linux-cpu"], "cannot run packer: No such file or directory; install it from https://"),
        (
            ["linux-tpu", "--instance-type", "m7i.large"],
            "there is no recipe 'linux-tpu'; name one of linux-cpu, linux-gpu, linux-rocm, windows, "
            "windows-gpu",
        ),
        (
            ["linux-rocm", "--arch", "arm64", "--instance-type", "g5g.xlarge"],
            "linux-rocm cannot be built for arm64: its driver exists for x64 only",
        ),
        (["linux-cpu", "--root", "docs"], "docs has no ami/linux; name the root"),
        (["windows", "--root", "docs"], "docs has no ami/windows; name the root"),
        (
            ["windows", "--arch", "arm64"],
            "windows cannot be built for arm64: it exists for x64 only",
        ),
    ],
)
def test_what_cannot_be_built_is_named(tmp_path: Path, words: list[str], why: str) -> None:
    process = bake(tmp_path, *words)
    _, error = process.communicate()
    assert (process.returncode, "".join(errors(error))[: len(why)]) == (2, why)


def errors(text: str) -> list[str]:
    """Return the lines but for the warning that GitHub soon gives the pinned runner no jobs."""
    return [line for line in text.splitlines() if ": warning: runner." not in line]


def test_a_value_that_is_null_is_not_built(tmp_path: Path) -> None:
    file = written(tmp_path, changed((f"sha256: {SUM}", "sha256: null")))
    process = bake(tmp_path, "linux-cpu", "--file", file)
    _, error = process.communicate()
    assert process.returncode == 2
    assert "runner.files.linux-x64.sha256: is null" in error


BUILDS = [
    (name, architecture)
    for name, recipe in MACHINE_RECIPES.items()
    for architecture in recipe.instance_types
]


@pytest.mark.parametrize(("name", "architecture"), BUILDS)
def test_the_shipped_file_has_every_value_that_a_recipe_needs(
    name: str, architecture: Architecture
) -> None:
    """Except the address and the checksum of NVIDIA's driver for Windows, which NVIDIA does not publish."""
    file, recipe = load_versions(), find_recipe(name, architecture, ROOT)
    assert all(template_values(file, recipe.platform, architecture).values())
    if name == "windows-gpu":
        with pytest.raises(ConfigurationError, match="nvidia-driver-windows"):
            driver_plan(file, recipe.platform, architecture, AcceleratorVendor.NVIDIA)
    elif recipe.vendor is not None:
        plan = driver_plan(file, recipe.platform, architecture, recipe.vendor)
        assert plan["vendor"] == recipe.vendor


def test_a_build_for_arm64_reads_the_files_for_arm64() -> None:
    values = template_values(load_versions(), OperatingSystem.LINUX, Architecture.ARM64)
    assert "-linux-arm64-" in values["runner_url"]
    assert "-arm64-server-" in values["source_name"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_build_lets_packer_clean_up_once(tmp_path: Path, number: int) -> None:
    packer = tmp_path / "packer"
    packer.write_text(
        # Not `print`, which refuses to run inside a signal handler that interrupted it.
        f"{first_line()}{old_packer()}import os, signal, sys\n"
        "signal.signal(signal.SIGINT, lambda *_: (os.write(1, b'cleaned up\\n'), sys.exit(1)))\n"
        "os.write(1, b'building\\n')\nwhile True: signal.pause()\n"
    )
    packer.chmod(0o755)
    process = bake(tmp_path, "linux-cpu")
    assert process.stdout is not None
    assert any(line == "building\n" for line in process.stdout)
    process.send_signal(number)
    output, _ = process.communicate(timeout=PATIENCE)
    assert output == "cleaned up\n"
    assert process.returncode not in (0, 2)


def test_a_reader_of_the_output_that_goes_away_lets_packer_clean_up(tmp_path: Path) -> None:
    """As in `autoscaler images bake ... | head -1`. Go's programs die of a broken pipe on their own stdout."""
    packer, cleaned = tmp_path / "packer", tmp_path / "cleaned"
    packer.write_text(
        f"{first_line()}{old_packer()}import os, pathlib, signal, sys, time\n"
        "def clean_up(*_):\n"
        "    os.write(1, b'cleaning up\\n')\n"
        f"    pathlib.Path({str(cleaned)!r}).touch()\n"
        "    sys.exit(1)\n"
        "signal.signal(signal.SIGINT, clean_up)\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_DFL)\n"
        "while True: os.write(1, b'building\\n'); time.sleep(0.05)\n"
    )
    packer.chmod(0o755)
    with bake(tmp_path, "linux-cpu") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert any(line == "building\n" for line in process.stdout)
        process.stdout.close()
        assert process.wait(timeout=PATIENCE) == 1
        assert errors(process.stderr.read()) == []
    assert cleaned.exists()
