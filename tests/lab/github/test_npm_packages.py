"""scripts/npm_packages.py: what it downloads, what it refuses, and its messages."""

import base64
import hashlib
import io
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.lab.github.npm import SCRIPT, package_file

NAMES = {"kept.json": b"{}", "deep/kept.json": b"[1]", "left.js": b"never()"}
PACKAGE = """
_ = MismatchError
PACKAGES = (Package("@scope/thing", "1.0.0", "{sha512}", {files}),)
"""


@cache
def _tarball() -> bytes:
    """The same each time, though it holds the moment of its making."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in NAMES.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        outside = tarfile.TarInfo("package/../../outside")
        archive.addfile(outside, io.BytesIO(b""))
    return packed.getvalue()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """A registry that has one package."""
    place = tmp_path / "registry" / "@scope" / "thing" / "-"
    place.mkdir(parents=True)
    (place / "thing-1.0.0.tgz").write_bytes(_tarball())
    handler = partial(_Quiet, directory=str(tmp_path / "registry"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        serving.join()


def _bring(
    tmp_path: Path, registry: str, files: tuple[str, ...], sha512: str | None = None
) -> tuple[subprocess.CompletedProcess[str], dict[str, bytes]]:
    """Run a copy of the script that pins the test's package; what it wrote, by path."""
    known = base64.b64encode(hashlib.sha512(_tarball()).digest()).decode()
    script = tmp_path / "checkout" / "scripts" / "npm_packages.py"
    script.parent.mkdir(parents=True, exist_ok=True)
    head, _, tail = SCRIPT.read_text().partition("\ndef find(")
    pins = PACKAGE.format(sha512=sha512 or known, files=files)
    script.write_text(f"{head}\n{pins}\n\ndef find({tail}")
    done = subprocess.run(
        [sys.executable, script],
        check=False,
        capture_output=True,
        text=True,
        env={"NPM_CONFIG_REGISTRY": registry},
    )
    cache = tmp_path / "checkout" / ".cache" / "npm"
    found = {
        str(path.relative_to(cache)).partition("/")[2]: path.read_bytes()
        for path in cache.rglob("*")
        if path.is_file()
    }
    return done, found


def test_only_the_named_files_are_kept_and_fetched_once(tmp_path: Path, registry: str) -> None:
    done, found = _bring(tmp_path, registry, ("kept.json", "deep/kept.json"))
    assert (done.returncode, done.stdout) == (0, "==> Brought @scope/thing 1.0.0\n"), done.stderr
    assert found == {"kept.json": b"{}", "deep/kept.json": b"[1]"}
    again, same = _bring(tmp_path, "http://127.0.0.1:1/", ("kept.json", "deep/kept.json"))
    assert (again.returncode, again.stdout, same) == (0, "", found)
    other, more = _bring(tmp_path, registry, ("left.js",))
    assert (other.returncode, set(more)) == (0, {*found, "left.js"})


def test_a_package_that_differs_from_its_pin_is_refused_and_not_kept(
    tmp_path: Path, registry: str
) -> None:
    done, found = _bring(tmp_path, registry, ("kept.json",), sha512="AAAA")
    assert (done.returncode, found) == (1, {})
    assert "is not the @scope/thing that is pinned" in done.stderr
    lacking, found = _bring(tmp_path, registry, ("kept.json", "none.json"))
    assert (lacking.returncode, found) == (1, {})
    assert "has no none.json" in lacking.stderr


@pytest.mark.parametrize("registry", ["http://127.0.0.1:1/", "nonsense", "http://[", "http://a b/"])
def test_without_a_registry_one_line_names_what_needs_it(tmp_path: Path, registry: str) -> None:
    done, found = _bring(tmp_path, registry, ("kept.json",))
    assert (done.returncode, done.stdout, found) == (1, "", {})
    (line,) = done.stderr.splitlines()
    assert line.startswith("==> Without @scope/thing (")
    assert line.endswith("): the tests that compare with it fail, and nothing else needs it")


def test_the_error_for_a_missing_file_names_the_command_that_downloads_it() -> None:
    with pytest.raises(FileNotFoundError, match=r"run: python scripts/npm_packages\.py"):
        package_file("SCHEMAS", "no-such.json")
