"""The image for Linux, built by Packer's amazon-ebs builder with real packages on a real root file system."""

import json
import stat

from tests.ami.account import VERSION
from tests.ami.conftest import Built

STEPS = ["system", "docker", "runner", "agent", "instance_store", "seal"]


def test_each_step_is_reported_with_its_seconds(built: Built) -> None:
    lines = [line for line in built.output.splitlines() if ": image-build: step " in line]
    assert [line.split("step ")[1].split(":")[0] for line in lines] == STEPS
    assert all(line.endswith(" s") for line in lines)


def test_the_build_leaves_no_machine(built: Built) -> None:
    assert built.machines_left == []


def test_the_image_and_its_snapshot_say_what_they_are(built: Built) -> None:
    tags = built.image.tags
    assert tags == {
        "Name": tags["Name"],
        "autoscaler:published": tags["autoscaler:published"],
        "autoscaler:image-set": "runner",
        "autoscaler:image-recipe": "linux-cpu",
        "autoscaler:image-base": "stock-1",
        "autoscaler:image-runner": VERSION,
        "autoscaler:image-agent": tags["autoscaler:image-agent"],
    }
    published = {"autoscaler:published": tags["autoscaler:published"]}
    assert built.snapshot_tags | published == tags


def test_the_image_is_published_after_it_tested_itself_on_a_machine(built: Built) -> None:
    versions = json.loads(built.read("/opt/runner-agent/image.json"))["versions"]
    _, separator, text = built.published.partition(" s: ")
    assert (built.published[:4], separator, json.loads(text)) == ("ami-", " s: ", versions)


def test_the_manifest_says_what_is_in_the_image(built: Built) -> None:
    manifest = json.loads(built.read("/opt/runner-agent/image.json"))
    versions = manifest["versions"]
    assert (manifest["recipe"], manifest["base_image"]) == ("linux-cpu", "stock-1")
    assert (versions["runner"], versions["docker"]) == (VERSION, "27.5.1")
    assert versions["agent"] == built.image.tags["autoscaler:image-agent"]
    assert manifest["packages"]["docker.io"] == "99.0"
    assert list(manifest["seconds"]) == sorted(STEPS[:-1])


def test_the_runner_is_warmed_up_and_has_its_environment(built: Built) -> None:
    assert built.read("/opt/actions-runner/warmed-by") == "runner\n"
    assert "/usr/local/bin:" in built.read("/opt/actions-runner/.path")
    assert "RUNNER_TOOL_CACHE=/opt/hostedtoolcache" in built.read("/opt/actions-runner/.env")
    # The agent would read the logs of the warm-up as those of the job's listener.
    assert not (built.disk / "opt/actions-runner/_diag").exists()


def test_the_runners_user_owns_its_folder_and_is_in_the_groups(built: Built) -> None:
    users = dict(line.split(":", 1) for line in built.read("/etc/passwd").splitlines())
    number = int(users["runner"].split(":")[1])
    assert number != 0
    for path in ("opt/actions-runner", "opt/actions-runner/_work", "opt/hostedtoolcache"):
        assert (built.disk / path).stat().st_uid == number
    groups = dict(line.split(":x:", 1) for line in built.read("/etc/group").splitlines())
    for group in ("docker", "video", "render"):
        assert groups[group].endswith(":runner")


def test_the_agent_belongs_to_root(built: Built) -> None:
    for name, mode in (("agent.py", 0o644), ("test-image", 0o755)):
        found = (built.disk / "opt/runner-agent" / name).stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, mode)


def test_services_start_at_boot_and_upgrades_do_not(built: Built) -> None:
    units = built.disk / "etc/systemd/system"
    wanted = {one.name for one in (units / "multi-user.target.wants").iterdir()}
    assert {"docker.service", "containerd.service", "runner-instance-store.service"} <= wanted
    masked = ("apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service")
    assert {str((units / one).readlink()) for one in masked} == {"/dev/null"}


def test_nothing_of_the_build_machine_is_left(built: Built) -> None:
    left = {str(one.relative_to(built.disk)) for one in built.disk.rglob("*") if one.is_file()}
    parts = ("authorized_keys", "ssh_host_", "image-build", "controller.json", "var/lib/apt/lists/")
    assert [one for one in left if any(part in one for part in parts)] == []
    assert not (built.disk / "var/lib/cloud/instance").is_symlink()
    logs = [one for one in (built.disk / "var/log").rglob("*") if one.is_file()]
    assert logs
    assert [one for one in logs if one.stat().st_size] == []
    assert built.read("/etc/machine-id") == ""
