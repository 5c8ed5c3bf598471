"""Turns a stock Windows instance into a machine image: runs the steps of a recipe, each with a check before and
a check after it, and writes the manifest. Packer runs it as administrator.

    python.exe -I -B C:\\image-build\\provision.py

recipes/ has the steps of each recipe, in order. A step is a module in steps/ with three functions: `before`
(can the step succeed?), `apply`, `after` (did it?). Each function has STEP_SECONDS to end. The template lists
the other variables.
"""

import importlib
import json
import os
import shutil
import sys
import threading
import time
import winreg
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Python's option -I leaves this folder out.
sys.path.insert(0, str(HERE))

from job_object import end_children_with_this_program  # noqa: E402 - from that folder
from library import (  # noqa: E402
    AGENT_FOLDER,
    StepError,
    say,
    value,
    versions,
    windows_version,
)

LIMIT = float(os.environ.get("STEP_SECONDS", "3600"))
INSTALLED = "SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\Uninstall"
"""Where Windows keeps what its installers installed."""


def phase(step: str, name: str, act: Callable[[], None]) -> None:
    """Run one function of a step. Exits with 1 if it fails or does not end."""

    def expire() -> None:
        say(f"error: step {step} was stopped in '{name}' after {LIMIT:.0f} s")
        os._exit(1)

    timer = threading.Timer(LIMIT, expire)
    timer.daemon = True
    timer.start()
    try:
        act()
    except (StepError, OSError) as error:
        say(f"error: {error}")
        say(f"error: step {step} failed in '{name}'")
        raise SystemExit(1) from None
    finally:
        timer.cancel()


def packages() -> "dict[str, str]":
    """Return the version of every program that Windows lists as installed."""
    found = {}
    with winreg.CreateKeyEx(
        winreg.HKEY_LOCAL_MACHINE, INSTALLED, 0, winreg.KEY_READ | winreg.KEY_WRITE
    ) as all_programs:
        for number in range(winreg.QueryInfoKey(all_programs)[0]):
            with winreg.OpenKey(all_programs, winreg.EnumKey(all_programs, number)) as one:
                try:
                    name = str(winreg.QueryValueEx(one, "DisplayName")[0])
                    found[name] = str(winreg.QueryValueEx(one, "DisplayVersion")[0])
                except FileNotFoundError:
                    continue
    return found


def write_manifest(seconds: "dict[str, int]") -> None:
    """Write what the image was made of, and what is in it."""
    manifest = {
        "recipe": value("IMAGE_RECIPE"),
        "architecture": value("PROCESSOR_ARCHITECTURE"),
        "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "base_image": value("BASE_IMAGE"),
        "kernel": windows_version(),
        "versions": versions,
        "seconds": seconds,
        "packages": packages(),
    }
    text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
    (AGENT_FOLDER / "image.json").write_text(text, encoding="utf-8")


def main() -> None:
    """Run the steps. Exits with 1 if one fails."""
    recipe = HERE / "recipes" / value("IMAGE_RECIPE")
    if not recipe.is_file():
        raise SystemExit(f"image-build: error: no recipe is called {recipe.name}")
    end_children_with_this_program()
    seconds: dict[str, int] = {}
    for step in recipe.read_text(encoding="ascii").split():
        began = time.monotonic()
        module = importlib.import_module(f"steps.{step}")
        # The last step removes what the build left, so the manifest is written before it.
        if step == "seal":
            phase(step, "manifest", lambda: write_manifest(seconds))
        for name in ("before", "apply", "after"):
            phase(step, name, getattr(module, name))
        seconds[step] = round(time.monotonic() - began)
        say(f"step {step}: {seconds[step]} s")
    os.chdir("C:\\")
    shutil.rmtree(HERE, ignore_errors=True)
    say("done")


main()
