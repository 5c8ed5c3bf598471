"""The push file: the built-in push, the jobs made from it, and the error messages."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model.catalogue import Architecture, OperatingSystem
from autoscaler.providers.ec2.instance_types import instance_type
from lab.fleet import SQLITE, Surroundings, fleet_settings
from lab.push import MOST_BYTES, PushError, read_example, read_push
from lab.push_fleet import lab_fleet

EXAMPLE = Path(__file__).parents[2] / "examples" / "trunk_push.yaml"

JOBS = {
    "linux.r7i.2xlarge": ("r7i.2xlarge", 9),
    "linux.arm64.m8g.4xlarge": ("m8g.4xlarge", 1),
    "linux.arm64.m7g.4xlarge": ("m7g.4xlarge", 8),
    "linux.g6.4xlarge.experimental.nvidia.gpu": ("g6.4xlarge", 15),
    "linux.g4dn.12xlarge.nvidia.gpu": ("g4dn.12xlarge", 10),
    "linux.g4dn.metal.nvidia.gpu": ("g4dn.metal", 1),
    "windows.4xlarge.nonephemeral": ("c5d.4xlarge", 15),
}
NOT_REPLAYED = {
    "macos-m1-stable": 5,
    "macos-m2-15": 1,
    "linux.rocm.gpu.mi350.dpx.1": 11,
    "linux.rocm.gpu.mi350.dpx.2": 3,
}

POD = {"resource": "amd.com/gpu", "count": 1, "dollars_per_hour": 1.0}

Edit = Callable[[dict[str, Any]], object]


def edited(folder: Path, edit: Edit) -> Path:
    """The example with something changed."""
    content = yaml.safe_load(EXAMPLE.read_text())
    edit(content)
    file = folder / "push.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False))
    return file


def test_the_example_is_the_trunk_push() -> None:
    push = read_example()
    assert push == read_push(EXAMPLE)
    assert push.count == 59
    asked = push.jobs_by_label
    assert {name: (sku.instance_type, asked[name]) for name, sku in push.skus.items()} == JOBS
    windows = {name for name, sku in push.skus.items() if sku.os is OperatingSystem.WINDOWS}
    assert sum(asked[name] for name in windows) == 15
    assert sum(asked[name] for name in set(asked) - windows) == 44
    assert {one.label: one.count for one in push.not_replayed} == NOT_REPLAYED
    assert sum(NOT_REPLAYED.values()) == 20
    assert push.shortest_minutes == 45 + 55


def test_the_example_has_fourteen_jobs_for_pods() -> None:
    push = read_example().with_pods()
    assert push.count == 59 + 14
    assert {label: push.jobs_by_label[label] for label in push.pods} == {
        "linux.rocm.gpu.mi350.dpx.1": 11,
        "linux.rocm.gpu.mi350.dpx.2": 3,
    }
    assert [(one.resource, one.count, one.vendor) for one in push.pods.values()] == [
        ("amd.com/dpx_nps2", 1, "amd"),
        ("amd.com/dpx_nps2", 2, "amd"),
    ]
    assert sum(one.count for one in push.not_replayed) == 6
    assert len(push.job_specs()) == 73
    without = push.model_copy(update={"pods": {}})
    with pytest.raises(PushError, match="no job of this push runs on pods"):
        without.with_pods()


def test_the_examples_machines_exist() -> None:
    for sku in read_example().skus.values():
        found = instance_type(sku.instance_type)
        assert found.arch is sku.arch
        assert found.dollars_per_hour(sku.os) > 0
    arms = [name for name, sku in read_example().skus.items() if sku.arch is Architecture.ARM64]
    assert arms == ["linux.arm64.m8g.4xlarge", "linux.arm64.m7g.4xlarge"]


def test_test_jobs_need_every_build_job() -> None:
    specs = read_example().job_specs()
    builds = tuple(spec.name for spec in specs if spec.name.startswith("build / "))
    tests = [spec for spec in specs if spec.name.startswith("test / ")]
    assert (len(builds), len(tests)) == (11, 48)
    assert all(spec.needs == builds for spec in tests)
    assert all(spec.needs == () for spec in specs if spec.name in builds)
    assert len({spec.name for spec in specs}) == 59
    assert Counter(spec.labels for spec in specs) == {
        (label,): count for label, (_, count) in JOBS.items()
    }
    assert tests[0].seconds == 55 * 60
    assert {spec.repository for spec in specs} == {"pytorch/pytorch"}


def drop_sku(content: dict[str, Any]) -> None:
    del content["skus"]["linux.r7i.2xlarge"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (drop_sku, "`skus` lacks labels that jobs use: linux.r7i.2xlarge"),
        (lambda c: c["phases"].pop(), "no job uses linux.arm64.m7g.4xlarge, linux.g4dn"),
        (lambda c: c["phases"][1].update(name="build"), "two phases have the same name"),
        (
            lambda c: c["phases"][0]["jobs"][0].update(count=0),
            "phases.0.jobs.0.count: must be at least 1",
        ),
        (lambda c: c["phases"][0]["jobs"][0].update(count=990), "1041 jobs; at most 1000"),
        (lambda c: c["phases"][0]["jobs"][0].update(minutes=-1), "phases.0.jobs.0.minutes: "),
        (lambda c: c["phases"][0]["jobs"][0].update(label="a b"), "phases.0.jobs.0.label: "),
        (lambda c: c["phases"][0]["jobs"][0].pop("label"), "phases.0.jobs.0.label: is missing"),
        (
            lambda c: c["skus"]["linux.r7i.2xlarge"].update(os="bsd"),
            "skus.linux.r7i.2xlarge.os: must be 'linux' or 'windows'",
        ),
        (
            lambda c: c["skus"]["linux.r7i.2xlarge"].update(gpu=1),
            "skus.linux.r7i.2xlarge.gpu: is an unknown key",
        ),
        (lambda c: c["not_replayed"][2]["on_pods"].update(phase="x"), "there is no phase x"),
        (lambda c: c["not_replayed"][2]["on_pods"]["pod"].update(resource="gpu"), "resource: "),
        (lambda c: c.update(pods={"a": POD}), "no job uses a"),
        (lambda c: c.update(pods={"linux.r7i.2xlarge": POD}), "both in `skus` and in `pods`"),
        (lambda c: c.update(repository="pytorch"), "repository: "),
        (lambda c: c.update(phases=[]), "phases: must have at least 1 entry"),
    ],
)
def test_a_push_error_names_file_and_key(tmp_path: Path, edit: Edit, message: str) -> None:
    file = edited(tmp_path, edit)
    with pytest.raises(PushError) as caught:
        read_push(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


def test_each_push_error_has_its_own_line(tmp_path: Path) -> None:
    file = edited(tmp_path, lambda content: content.update(about="", repository="x"))
    with pytest.raises(PushError) as caught:
        read_push(file)
    assert [line.split(": ")[1] for line in str(caught.value).splitlines()] == [
        "about",
        "repository",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "not a mapping"),
        ("a: [\n", "not YAML: "),
        ("a: \x00\n", "not YAML: "),
        ("#" * (MOST_BYTES + 1), f"larger than {MOST_BYTES} bytes"),
    ],
)
def test_a_file_that_is_not_a_push_is_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "push.yaml"
    file.write_text(text)
    with pytest.raises(PushError, match=message):
        read_push(file)


def test_a_missing_push_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(PushError, match="cannot be read: No such file"):
        read_push(tmp_path / "push.yaml")


def test_a_replay_gives_runners_and_machines_real_time_on_a_busy_host() -> None:
    fleet = lab_fleet(read_example(), 80.0)
    waits = fleet.github_patience.at(80.0)
    assert (waits.start, waits.lock, waits.presence) == (60 * 80.0, 60 * 80.0, 60 * 80.0)
    # 60 s until an agent starts, and 45 s without an answer.
    assert fleet.machine_scale == 20.0
    assert lab_fleet(read_example(), 10.0).machine_scale == 10.0
    # A heartbeat every 60 machine seconds must stay below the 15 lab minutes of a silent machine.
    assert lab_fleet(read_example(), 1000.0).machine_scale == 250.0
    assert {sku["deadlines"]["boot"] for sku in fleet.skus.values()} == {"9600s"}


def test_a_replay_expects_jobs_to_start_as_soon_as_machines_boot_on_this_host() -> None:
    """Within 270 real seconds at the demo's scale: with a load of 17 on two cores, some took over 90."""
    assert lab_fleet(read_example(), 80.0).wait_objective == 21_600
    assert lab_fleet(read_example(), 1.0).wait_objective == 300
    assert lab_fleet(read_example(), 10.0).wait_objective == 1800
    assert lab_fleet(read_example(), 100_000.0).wait_objective == 21_600
    around = Surroundings("http://github", "http://ec2", SQLITE, {})
    settings = fleet_settings(
        lab_fleet(read_example(), 10.0), "127.0.0.1:1", "http://127.0.0.1:1", around
    )
    assert settings["metrics"] == {"wait_objectives": ["all=.*:1800:0.999"]}
