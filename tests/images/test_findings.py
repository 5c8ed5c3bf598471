"""What `images check` finds: nulls, GitHub's rule about the runner, and ends of life."""

from datetime import date
from pathlib import Path

import pytest

from autoscaler.config.problems import dotted
from autoscaler.images.findings import Finding, find, missing_base_images, nulls
from autoscaler.images.load import load_versions
from tests.images.versions import SUM, loaded

QUIET = date(2026, 10, 8)
NEXT = ("  newest_on: 2026-10-07\n", "  newest_on: 2026-10-07\n  next: {version: 2.339.0, DATE}\n")


def released(day: str) -> tuple[str, str]:
    """Add a next release of this day."""
    return NEXT[0], NEXT[1].replace("DATE", f"released: {day}")


def found(folder: Path, today: date, *replacements: tuple[str, str]) -> list[Finding]:
    return list(find(loaded(folder, *replacements).versions, today))


def keys(findings: list[Finding]) -> list[str]:
    return [dotted(one.path) for one in findings]


def test_a_file_without_gaps_and_old_versions_has_no_findings(tmp_path: Path) -> None:
    assert found(tmp_path, QUIET) == []


@pytest.mark.parametrize(
    ("old", "new", "key", "source"),
    [
        (f"sha256: {SUM}", "sha256: null", "runner.files.linux-x64.sha256", "github.com/x.tar.gz"),
        ("{url: https://github.com/x.tar.gz,", "{url: null,", "runner.files.linux-x64.url", "/runner/releases"),
        ("version: 580.178.04", "version: null", "programs.driver.version", "docs.nvidia.com/notes"),
        ("{date: 2028-08-04,", "{date: null,", "programs.driver.end_of_life.date", "releases.json"),
        ('"20260923"', "null", "machine_images.linux.version", "cloud-images.ubuntu.com"),
        ("arm64: linux-20260923-arm64", "arm64: null", "machine_images.linux.names.arm64", "/locator"),
        (f"digest: sha256:{SUM}", "digest: null", "container_images.base.digest", "hub.docker.com"),
        (f"amd64: sha256:{SUM}", "amd64: null", "container_images.base.platforms.amd64", "hub.docker"),
    ],
)  # fmt: skip
def test_each_null_is_found_with_the_page_that_has_the_value(
    tmp_path: Path, old: str, new: str, key: str, source: str
) -> None:
    [one] = found(tmp_path, QUIET, (old, new))
    assert dotted(one.path) == key
    assert one.what == "is null: it was not read yet, and no build may use it"
    assert source in one.fix
    assert not one.warning


def test_a_key_that_is_not_there_is_no_null(tmp_path: Path) -> None:
    file = loaded(tmp_path, ("  files:\n", "  files: {}\n  # "), ("    linux-x64", "  # linux-x64"))
    assert list(nulls(file.versions)) == []


def test_a_day_that_is_still_to_come_does_not_silence_the_warning(tmp_path: Path) -> None:
    future = ("newest_on: 2026-10-07", "newest_on: 2062-10-07")
    [one] = found(tmp_path, date(2027, 3, 1), future)
    assert (dotted(one.path), one.warning) == ("runner.newest_on", False)
    assert one.what.startswith("2062-10-07 is still to come")
    assert one.fix.startswith(
        "write the day on which you looked at https://github.com/actions/runner"
    )


@pytest.mark.parametrize(("day", "refused"), [(2, False), (3, True)])
def test_the_writer_s_day_may_have_begun_before_that_of_utc(
    tmp_path: Path, day: int, refused: bool
) -> None:
    recent = ("newest_on: 2026-10-07", f"newest_on: 2027-03-0{day}")
    findings = [one for one in found(tmp_path, date(2027, 3, 1), recent) if not one.warning]
    assert keys(findings) == (["runner.newest_on"] if refused else [])


@pytest.mark.case(
    "GitHub gives a runner no jobs 30 days after the release of the next version",
    topic="Runner and listener",
    source="actions/runner#4392",
)
@pytest.mark.parametrize(
    ("today", "warning"),
    [
        (date(2026, 11, 4), None),
        (date(2026, 11, 5), None),
        (date(2026, 11, 6), True),
        (date(2026, 11, 19), True),
        (date(2026, 11, 20), False),
        (date(2027, 3, 1), False),
    ],
)
def test_the_runner_is_reported_two_weeks_before_github_refuses_it(
    tmp_path: Path, today: date, warning: bool | None
) -> None:
    findings = found(tmp_path, today, released("2026-10-21"))
    if warning is None:
        assert findings == []
        return
    [one] = findings
    assert (keys(findings), one.warning) == (["runner.version"], warning)
    assert one.what == (
        "GitHub gives 2.338.0 no jobs from 2026-11-20 on, 30 days after the release of 2.339.0"
    )


@pytest.mark.parametrize(
    ("today", "reported"),
    [
        (date(2026, 10, 22), False),
        (date(2026, 10, 23), True),
        (date(2026, 11, 6), True),
        (date(2027, 3, 1), True),
    ],
)
def test_an_old_look_at_the_releases_is_reported_because_there_may_be_a_newer_one(
    tmp_path: Path, today: date, reported: bool
) -> None:
    findings = found(tmp_path, today)
    assert keys(findings) == (["runner.newest_on"] if reported else [])
    for one in findings:
        assert one.warning
        assert "was the newest release on 2026-10-07" in one.what
        assert "no jobs from 2026-11-06 on" in one.what


@pytest.mark.case(
    "GitHub registers no runner older than 2.329.0",
    topic="Runner and listener",
    source="community#194762",
)
@pytest.mark.parametrize(
    ("version", "refused"), [("2.328.9", True), ("2.329.0", False), ("2.1000.0", False)]
)
def test_a_runner_below_the_oldest_that_github_registers_is_reported(
    tmp_path: Path, version: str, refused: bool
) -> None:
    findings = found(tmp_path, QUIET, ("version: 2.338.0", f"version: {version}"))
    assert keys(findings) == (["runner.version"] if refused else [])
    for one in findings:
        assert not one.warning
        assert one.what == "2.328.9 is older than 2.329.0, the oldest that GitHub registers"


@pytest.mark.parametrize(
    ("today", "what", "warning"),
    [
        (date(2028, 5, 5), None, False),
        (date(2028, 5, 6), "its end of life is on 2028-08-04, in 90 days", True),
        (date(2028, 8, 3), "its end of life is on 2028-08-04, in 1 day", True),
        (date(2028, 8, 4), "its end of life is on 2028-08-04, in 0 days", True),
        (date(2028, 8, 5), "its end of life was on 2028-08-04", False),
    ],
)
def test_an_end_of_life_is_reported_from_90_days_before(
    tmp_path: Path, today: date, what: str | None, warning: bool
) -> None:
    recent = ("newest_on: 2026-10-07", f"newest_on: {today}")
    findings = found(tmp_path, today, recent)
    assert keys(findings) == (["programs.driver.end_of_life.date"] if what else [])
    assert [(one.what, one.warning) for one in findings] == ([(what, warning)] if what else [])
    assert all("https://docs.nvidia.com/releases.json" in one.fix for one in findings)


def test_the_ends_of_life_of_both_kinds_of_images_are_reported(tmp_path: Path) -> None:
    today = date(2029, 6, 1)
    findings = found(tmp_path, today, ("newest_on: 2026-10-07", f"newest_on: {today}"))
    assert keys(findings) == [
        "programs.driver.end_of_life.date",
        "machine_images.linux.end_of_life.date",
        "container_images.base.end_of_life.date",
    ]


def test_every_driver_of_this_project_has_a_branch_and_its_end_of_life() -> None:
    versions = load_versions().versions
    drivers = {name: one for name, one in versions.programs.items() if "driver" in name}
    assert set(drivers) >= {"nvidia-driver", "nvidia-driver-windows", "amdgpu-driver"}
    assert all(one.branch and one.end_of_life for one in drivers.values())
    assert {"amazon-linux", "ubuntu", "windows-server"} <= set(versions.machine_images)
    assert {"controller", "ubuntu", "cuda", "rocm", "windows"} <= set(versions.container_images)


def test_each_base_image_that_ec2_does_not_show_is_named() -> None:
    versions = load_versions().versions
    every = [
        (name, image.owner)
        for image in versions.machine_images.values()
        for name in image.names.values()
        if name is not None
    ]
    gone = every[0]
    (found,) = missing_base_images(versions, lambda name, owner: (name, owner) != gone)
    assert found.path[:3] == ("machine_images", next(iter(versions.machine_images)), "names")
    assert gone[0] in found.what
    source = next(iter(versions.machine_images.values())).source
    assert found.fix == f"take a newer image, see {source}"
    assert not found.warning
    assert len(list(missing_base_images(versions, lambda *_: False))) == len(every)
