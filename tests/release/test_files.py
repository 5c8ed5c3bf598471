"""What the wheel contains, and what the bill of materials says about it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from scripts.release import ROOT, write_sums
from scripts.spdx import bill_of_materials, needed

LOCKED: list[dict[str, Any]] = [
    {
        "name": "ours",
        "version": "1.0",
        "dependencies": [{"name": "b", "extra": ["fast"]}],
    },
    {
        "name": "b",
        "version": "2.0",
        "sdist": {"url": "https://example.com/b-2.0.tar.gz", "hash": "sha256:" + "b" * 64},
        "optional-dependencies": {"fast": [{"name": "a"}]},
    },
    {
        "name": "a",
        "version": "3.0",
        "wheels": [{"url": "https://example.com/a.whl", "hash": "sha256:" + "a" * 64}],
        "dependencies": [{"name": "b"}],
    },
    {"name": "tool", "version": "4.0"},
]


def test_the_wheel_has_every_file_of_the_product_and_the_runbooks() -> None:
    listed = ["git", "ls-files", "autoscaler", "docs/runbooks", "lab"]
    tracked = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    wanted = {
        name.replace("docs/runbooks/", "autoscaler/console/runbooks/")
        for name in tracked.stdout.split()
        # A link to docs/runbooks.
        if name != "autoscaler/console/runbooks"
    }
    found = {one.distribution_path for one in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert wanted - found == set()
    assert {Path(one).parts[0] for one in found} == {"autoscaler", "lab"}


def test_the_bill_lists_what_is_needed_and_no_other_package(tmp_path: Path) -> None:
    file = tmp_path / "ours_1.whl"
    file.write_bytes(b"wheel")
    bill = json.loads(bill_of_materials(LOCKED, "ours", 0, [file]))
    assert [(one["name"], one["versionInfo"]) for one in bill["packages"]] == [
        ("ours", "1.0"),
        ("a", "3.0"),
        ("b", "2.0"),
    ]
    by_name = {one["name"]: one for one in bill["packages"]}
    assert by_name["b"]["downloadLocation"] == "https://example.com/b-2.0.tar.gz"
    assert by_name["a"]["checksums"] == [{"algorithm": "SHA256", "checksumValue": "a" * 64}]
    assert by_name["ours"]["externalRefs"][0]["referenceLocator"] == "pkg:pypi/ours@1.0"
    related = {
        (one["spdxElementId"], one["relationshipType"], one["relatedSpdxElement"])
        for one in bill["relationships"]
    }
    assert related == {
        ("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Package-ours"),
        ("SPDXRef-File-ours-1.whl", "GENERATED_FROM", "SPDXRef-Package-ours"),
        ("SPDXRef-Package-ours", "DEPENDS_ON", "SPDXRef-Package-b"),
        ("SPDXRef-Package-b", "DEPENDS_ON", "SPDXRef-Package-a"),
        ("SPDXRef-Package-a", "DEPENDS_ON", "SPDXRef-Package-b"),
    }
    assert bill["creationInfo"]["created"] == "1970-01-01T00:00:00Z"


def test_another_file_gives_the_bill_another_namespace(tmp_path: Path) -> None:
    file = tmp_path / "ours.whl"
    spaces = set()
    for content in (b"one", b"other", b"one"):
        file.write_bytes(content)
        bill = json.loads(bill_of_materials(LOCKED, "ours", 0, [file]))
        spaces.add(bill["documentNamespace"])
    assert len(spaces) == 2


def test_a_package_that_the_lock_file_lacks_is_an_error() -> None:
    with pytest.raises(KeyError):
        needed({"ours": LOCKED[0]}, "ours")


def test_sha256sum_accepts_the_checksums_and_sees_a_changed_file(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("a")
    write_sums(tmp_path)
    write_sums(tmp_path)
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "a.whl: OK\n")
    (tmp_path / "a.whl").write_text("b")
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 1
