"""Writes the manifest of an image: what it was made of, and what is in it.

    manifest.py BUILD_FOLDER FILE

`versions`, `packages` and `steps` in the folder have a name, a tab and a value in each line; steps, seconds.
"""

import json
import os
import pathlib
import platform
import sys
import time


def lines(folder: str, name: str) -> "dict[str, str]":
    """Return the values of a file of the build, by name."""
    text = pathlib.Path(folder, name).read_text(encoding="utf-8")
    return dict(line.split("\t", 1) for line in text.splitlines())


def main() -> None:
    """Write the manifest."""
    folder, target = sys.argv[1:]
    manifest = {
        "recipe": os.environ["IMAGE_RECIPE"],
        "architecture": platform.machine(),
        "built_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "base_image": os.environ["BASE_IMAGE"],
        "kernel": platform.release(),
        "versions": lines(folder, "versions"),
        "seconds": {name: int(value) for name, value in lines(folder, "steps").items()},
        "packages": lines(folder, "packages"),
    }
    file = pathlib.Path(target)
    file.write_text(json.dumps(manifest, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    file.chmod(0o644)


main()
