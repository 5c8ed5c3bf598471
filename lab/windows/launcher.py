"""Makes Windows programs (.exe) of the lab's Python programs."""

import io
import zipfile
from importlib.resources import files

from lab.windows.parts import Parts

LAUNCHER = "pip/_vendor/distlib/t64.exe"
"""pip's launcher: it runs the program that is appended to it, with the Python of its first line."""

PYTHON = "C:\\runner-agent\\python"
"""The folder of Python on a Windows machine, as docs/agent.md has it."""


def launcher(parts: Parts, python: str, program: str) -> bytes:
    """Return an .exe that runs a file of `programs` with this copy of python.exe."""
    source = files(__package__) / "programs" / f"{program}.py"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__main__.py", source.read_bytes())
    start = (parts.python / "Lib" / LAUNCHER).read_bytes()
    return start + f"#!{PYTHON}\\{python}.exe -I -S\r\n".encode() + packed.getvalue()
