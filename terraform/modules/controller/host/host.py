#!/usr/bin/python3
"""Prepares the controller's host: its store, its secrets and its fleet.yaml. Backs the store up.

    host.py prepare    before the controller starts: wait for the old host; attach, mount, restore, fetch
    host.py update     each minute: replace a changed fleet.yaml that `check` accepts; restart the controller
    host.py backup     each few minutes: copy the store to S3

A replica has its store on PostgreSQL: it waits for no host, has no volume, and makes no backup.

Runs as root with Python 3.9's standard library and the AWS CLI, as Amazon Linux 2023 has them. Settings are in
/etc/gpu-runner-autoscaler/host.json. Each line of output is for the journal.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar

SETTINGS = Path(os.environ.get("HOST_SETTINGS", "/etc/gpu-runner-autoscaler/host.json"))
METADATA = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
PAUSE = float(os.environ.get("HOST_PAUSE", "5"))
"""Seconds between two looks at something that is not there yet."""

STUCK = 60.0
"""Seconds for which an instance that ends may keep the volume. After that, the volume is detached by force."""

ENDING = 180.0
"""Seconds for which `prepare` waits for a host that shuts down: systemd stops its controller within them."""

Found = TypeVar("Found")
GONE = ("deleting", "deleted", "error")
ENDS = ("shutting-down", "terminated", "stopping", "stopped", "")


class Replica(TypedDict):
    """What a host needs beside others that run controllers of the same fleet."""

    certificate: str
    """The ARN of the secret with the certificate of all hosts and its key."""
    database_ca: str
    """The key of the database's CA certificates in the bucket."""
    port: int
    """Where other hosts reach the controller."""


class Settings(TypedDict):
    """What host.tf writes into host.json."""

    fleet: str
    region: str
    replica: Replica | None
    """None for a host with a store of its own."""
    volume: str | None
    """The ID of the volume with the store; None for a replica."""
    devices: str
    """The folder with the devices of attached volumes."""
    bucket: str
    backup: str
    """The key of the backups in the bucket."""
    data: str
    """The folder with the store."""
    run: str
    """The folder with fleet.yaml and its files."""
    user: int
    """The user of the controller in its container image, and the group."""
    secrets: dict[str, str]
    """The ARN of the secret for each file."""
    namespace: str
    """CloudWatch's namespace of the metric `Backups`."""
    autoscaler: list[str]
    """The command `autoscaler` in the controller's image."""
    config: str
    """The folder `run`, as `autoscaler` sees it. It sees `data` as the host does."""
    restart: list[str]
    """The command that restarts the controller."""


def say(text: str) -> None:
    """Print a line for the journal."""
    print(text, flush=True)


class AwsError(Exception):
    """The AWS CLI failed. The message is its own."""


class NotYetError(Exception):
    """Something is not there yet. The message says why."""


def aws(*words: str) -> dict[str, Any]:
    """Run the AWS CLI and return its answer; empty for a command without one. Raises AwsError."""
    done = subprocess.run(
        ["aws", *words, "--output", "json"],
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise AwsError(done.stderr.decode(errors="replace").strip())
    answer: dict[str, Any] = json.loads(done.stdout.strip() or "{}")
    return answer


def until(what: str, step: Callable[[], Found | None]) -> Found:
    """Call `step` until it returns something, and report each reason to wait once. Return it."""
    reported: str | None = None
    while True:
        try:
            if found := step():
                return found
            why = "not there yet"
        except (AwsError, NotYetError) as failure:
            why = str(failure)
        if why != reported:
            say(f"waiting for {what}: {why}")
            reported = why
        time.sleep(PAUSE)


def metadata(name: str) -> str:
    """Return a value that EC2 has for this instance, from IMDSv2."""
    ask = urllib.request.Request(
        METADATA + "/latest/api/token",
        method="PUT",
        headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"},
    )
    with urllib.request.urlopen(ask, timeout=5) as answer:
        token: str = answer.read().decode()
    ask = urllib.request.Request(
        f"{METADATA}/latest/meta-data/{name}", headers={"X-aws-ec2-metadata-token": token}
    )
    with urllib.request.urlopen(ask, timeout=5) as answer:
        found: str = answer.read().decode()
    return found


def get_object(settings: Settings, key: str, target: Path) -> bool:
    """Fetch an object of the bucket. Return False if there is none. Raises AwsError."""
    try:
        aws("s3api", "get-object", "--bucket", settings["bucket"], "--key", key, str(target))
    except AwsError as error:
        if "NoSuchKey" not in str(error):
            raise
        return False
    return True


def find_volume(volume: str) -> dict[str, Any] | None:
    """Return EC2's description of the volume, or None if the volume is lost."""
    try:
        answer = aws("ec2", "describe-volumes", "--volume-ids", volume)
    except AwsError as error:
        if "InvalidVolume.NotFound" in str(error):
            return None
        raise
    found: dict[str, Any] = answer["Volumes"][0]
    return None if found["State"] in GONE else found


def state_of(instance: str) -> str:
    """Return the state of an instance, or nothing for one that EC2 does not show any more."""
    try:
        found = aws("ec2", "describe-instances", "--instance-ids", instance)["Reservations"]
    except AwsError as error:
        if "InvalidInstanceID.NotFound" in str(error):
            return ""
        raise
    return str(found[0]["Instances"][0]["State"]["Name"]) if found else ""


def hosts_to_wait_for(states: dict[str, str], ends_since: dict[str, float], now: float) -> str:
    """Return which hosts may still run a controller, as a text such as "i-1 is running".

    `states` has each host's state by its ID. `ends_since` keeps when each host was first seen to end, in
    seconds as `now` is. A host that hangs while it shuts down counts for ENDING seconds.
    """
    found = []
    for host, state in sorted(states.items()):
        if state in ("pending", "running"):
            ends_since.pop(host, None)
            found.append(f"{host} is {state}")
        elif now - ends_since.setdefault(host, now) < ENDING:
            found.append(f"{host} is {state}")
    return ", ".join(found)


class OtherHosts:
    """The fleet's hosts but this one. Two controllers at a time would launch machines for the same jobs."""

    def __init__(self, fleet: str, instance: str) -> None:
        self._filters = (
            f"Name=tag:gpu-runner-autoscaler:controller,Values={fleet}",
            "Name=instance-state-name,Values=pending,running,shutting-down,stopping",
        )
        self._instance = instance
        self._ends_since: dict[str, float] = {}

    def step(self) -> bool:
        """Return True if no other host may run a controller. Raises AwsError and NotYetError."""
        answer = aws("ec2", "describe-instances", "--filters", *self._filters)
        found = [one for group in answer["Reservations"] for one in group["Instances"]]
        states = {one["InstanceId"]: one["State"]["Name"] for one in found}
        states.pop(self._instance, None)
        if others := hosts_to_wait_for(states, self._ends_since, time.monotonic()):
            raise NotYetError(others)
        return True


class Attachment:
    """Attaches the volume to this instance, once no other instance has it."""

    def __init__(self, volume: str, instance: str) -> None:
        self._volume = volume
        self._instance = instance
        self._ends_since: float | None = None

    def step(self) -> str | None:
        """Do what is next. Return `attached` or `lost` when it is over."""
        found = find_volume(self._volume)
        if found is None:
            return "lost"
        holders = [one for one in found["Attachments"] if one["State"] != "detached"]
        if not holders:
            say(f"attaching {self._volume}")
            self._change("attach-volume", self._instance, "--device", "/dev/sdf")
            return None
        holder = holders[0]
        if holder["InstanceId"] == self._instance:
            return "attached" if holder["State"] == "attached" else None
        self._release(holder["InstanceId"])
        return None

    def _release(self, holder: str) -> None:
        """Detach the volume from an instance that ends; a running one may be writing."""
        state = state_of(holder)
        if state not in ENDS:
            self._ends_since = None
            say(f"{holder} has the volume, and is {state}")
            return
        now = time.monotonic()
        if self._ends_since is None:
            self._ends_since = now
        force = state == "" or now - self._ends_since >= STUCK
        why = state or "gone"
        say(f"detaching the volume from {holder} ({why})")
        self._change("detach-volume", holder, *(["--force"] if force else []))

    def _change(self, action: str, instance: str, *more: str) -> None:
        aws("ec2", action, "--volume-id", self._volume, "--instance-id", instance, *more)


def take_volume(settings: Settings, volume: str, folder: Path) -> None:
    """Mount the volume with the store at `folder`, once no other host may run a controller."""
    instance = until("the instance ID", partial(metadata, "instance-id"))
    # Also before the store is restored: a host that ends makes a last backup.
    until("the end of the other host", OtherHosts(settings["fleet"], instance).step)
    if until(f"the volume {volume}", Attachment(volume, instance).step) == "attached":
        mount(settings, volume, folder)
    else:
        say(f"the volume {volume} is lost: the store is on the root disk until `terraform apply`")


def mount(settings: Settings, volume: str, folder: Path) -> None:
    """Mount the volume at `folder`; make a file system on one that has none."""
    if os.path.ismount(folder):
        return
    name = "nvme-Amazon_Elastic_Block_Store_" + volume.replace("-", "")
    device = Path(settings["devices"]) / name
    until(f"the device {device}", device.exists)
    # Low-level probing alone tells contradictory signatures (8) from none (2): blkid(8), "EXIT STATUS".
    if subprocess.run(["blkid", "-p", str(device)], check=False).returncode == 2:
        say(f"making a file system on {device}")
        subprocess.run(["mkfs.ext4", "-q", str(device)], check=True)
    subprocess.run(
        ["mount", "-o", "noatime,nodev,nosuid,noexec", str(device), str(folder)], check=True
    )
    # `volume_gb` may have been raised. The store also works in a file system that did not grow.
    if subprocess.run(["resize2fs", str(device)], check=False).returncode != 0:
        say(f"the file system on {device} keeps its size")


def autoscaler(settings: Settings, *words: str) -> None:
    """Run `autoscaler` in the controller's image. Raises CalledProcessError if it fails; it says why."""
    subprocess.run([*settings["autoscaler"], *words], check=True)


def care(settings: Settings, command: str, file: Path) -> None:
    """Run a command of `autoscaler store` with a file in `data`."""
    autoscaler(settings, "store", command, "-c", settings["config"] + "/fleet.yaml", str(file))


def restore(settings: Settings, data: Path) -> None:
    """Restore the newest backup, if there is one. Otherwise the controller begins a new store."""
    packed, plain = data / "restored.db.gz", data / "restored.db"

    def fetch() -> str:
        return "fetched" if get_object(settings, settings["backup"], packed) else "none"

    try:
        if until("the backup", fetch) == "none":
            say("there is no backup: the controller begins a new store")
            return
        with gzip.open(str(packed)) as source, plain.open("wb") as target:
            shutil.copyfileobj(source, target)
        own(settings, plain)
        care(settings, "restore", plain)
    finally:
        for file in (packed, plain):
            if file.exists():
                file.unlink()
    say("restored the store from its newest backup")


def fetch_secrets(settings: Settings, folder: Path) -> None:
    """Write each secret into a file that only the controller can read."""
    for name, arn in sorted(settings["secrets"].items()):
        write(settings, folder / name, fetch_secret(arn))


def fetch_secret(arn: str) -> bytes:
    """Return the text of a secret, once it has one."""
    words = ("secretsmanager", "get-secret-value", "--secret-id", arn)
    answer = until(f"the secret {arn}", partial(aws, *words))
    text: str = answer["SecretString"]
    return text.encode()


def join(settings: Settings, replica: Replica, run: Path) -> None:
    """Write what a replica needs: the certificate of all, the CA of the database, and where others reach it."""
    both = fetch_secret(replica["certificate"])
    for name in ("server.key", "server.pem"):
        write(settings, run / "tls" / name, both)
    ca = until("the CA of the database", partial(read_object, settings, replica["database_ca"]))
    write(settings, run / "database-ca.pem", ca)
    address = until("the address of this host", partial(metadata, "local-ipv4"))
    url = f"https://{address}:{replica['port']}"
    write(settings, run / "replica.env", f"AUTOSCALER_REPLICA_URL={url}\n".encode())


def make_certificate(settings: Settings, folder: Path) -> None:
    """Make the certificate with which the load balancer reaches this host; it checks none."""
    command = "openssl req -x509 -nodes -days 3650 -subj /CN=controller"
    command += " -newkey ec -pkeyopt ec_paramgen_curve:prime256v1"
    files = ["-keyout", str(folder / "server.key"), "-out", str(folder / "server.pem")]
    subprocess.run([*command.split(), *files], check=True, stderr=subprocess.DEVNULL)
    for name in ("server.key", "server.pem"):
        own(settings, folder / name)
        (folder / name).chmod(0o400)


def own(settings: Settings, path: Path) -> None:
    """Give a file to the user of the controller in its container image."""
    os.chown(str(path), settings["user"], settings["user"])


def write(settings: Settings, path: Path, content: bytes) -> None:
    """Replace a file of the controller at once."""
    part = path.with_name(path.name + ".part")
    part.touch(mode=0o600)
    part.write_bytes(content)
    own(settings, part)
    part.chmod(0o400)
    part.replace(path)


def read_object(settings: Settings, key: str) -> bytes | None:
    """Return a file from S3, or None if S3 has none. Raises AwsError."""
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "object"
        if not get_object(settings, key, target):
            return None
        return target.read_bytes()


def prepare(settings: Settings) -> None:
    """Make everything that the controller needs. Returns when all is there."""
    data, run = Path(settings["data"]), Path(settings["run"])
    replica, volume = settings["replica"], settings["volume"]
    data.mkdir(parents=True, exist_ok=True)
    if volume is not None:
        take_volume(settings, volume, data)
    own(settings, data)
    run.mkdir(parents=True, exist_ok=True)
    run.chmod(0o755)
    for name in ("secrets", "tls"):
        (run / name).mkdir(exist_ok=True)
    fetch_secrets(settings, run / "secrets")
    if replica is None:
        make_certificate(settings, run / "tls")
    else:
        join(settings, replica, run)
    last = data / "fleet.yaml"
    # The last one serves while `terraform destroy` has deleted S3's and stopped at machines that run.
    content = until(
        "fleet.yaml",
        lambda: (
            read_object(settings, "fleet.yaml") or (last.read_bytes() if last.exists() else None)
        ),
    )
    write(settings, run / "fleet.yaml", content)
    write(settings, last, content)
    if volume is not None and not (data / "state.db").exists():
        restore(settings, data)
    say("the host is ready")


def update(settings: Settings) -> None:
    """Replace fleet.yaml if it changed and `check` accepts it, and restart the controller."""
    data, run = Path(settings["data"]), Path(settings["run"])
    content = read_object(settings, "fleet.yaml")
    if content is None or content == (run / "fleet.yaml").read_bytes():
        return
    write(settings, run / "fleet.new.yaml", content)
    try:
        autoscaler(settings, "check", settings["config"] + "/fleet.new.yaml")
    except subprocess.CalledProcessError:
        say("`check` refuses the new fleet.yaml: the controller keeps the old one")
        return
    write(settings, run / "fleet.yaml", content)
    write(settings, data / "fleet.yaml", content)
    say("fleet.yaml has changed: restarting the controller")
    subprocess.run(settings["restart"], check=True)


def backup(settings: Settings) -> None:
    """Copy the store to S3 while the controller writes, and count the copy."""
    data = Path(settings["data"])
    if not (data / "state.db").exists():
        say("there is no store yet")
        return
    copy, packed = data / "backup.db", data / "backup.db.gz"
    try:
        care(settings, "backup", copy)
        with copy.open("rb") as plain, gzip.open(str(packed), "wb", 1) as compressed:
            shutil.copyfileobj(plain, compressed)
        bucket, key = settings["bucket"], settings["backup"]
        aws("s3api", "put-object", "--bucket", bucket, "--key", key, "--body", str(packed))
        say(f"backed up {packed.stat().st_size} bytes")
    finally:
        for file in (copy, packed):
            if file.exists():
                file.unlink()
    namespace, fleet = settings["namespace"], settings["fleet"]
    words = ("cloudwatch", "put-metric-data", "--namespace", namespace, "--metric-name", "Backups")
    aws(*words, "--value", "1", "--dimensions", f"Fleet={fleet}")


def main(words: list[str]) -> int:
    """Run a command. Return the exit status."""
    commands = {"prepare": prepare, "update": update, "backup": backup}
    if len(words) != 2 or words[1] not in commands:
        print(__doc__, file=sys.stderr)
        return 2
    settings: Settings = json.loads(SETTINGS.read_text())
    os.environ.setdefault("AWS_DEFAULT_REGION", settings["region"])
    try:
        commands[words[1]](settings)
    except (AwsError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
