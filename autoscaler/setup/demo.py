"""Writes the folder of a fleet for a GitHub and an EC2 that `autoscaler-lab` plays: `autoscaler init --demo`.

The lab reads the same files as the controller, and the names below.
"""

import random
import shlex
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from autoscaler.setup import choices
from autoscaler.setup.github_app import NotFinishedError, Say
from autoscaler.setup.local_files import write_missing
from autoscaler.setup.private_files import PUBLIC, NotWrittenError, write_new

APP_ID = 1234
OWNER, REPOSITORY, GROUP = "acme", "rocket", "gpu"
REGION, INSTANCE_TYPE = "us-east-1", "g5.xlarge"

NETWORK_SEED = 1
SUBNET, SECURITY_GROUP = "subnet-8a7870cad78625e48", "sg-8af362100fac96c54"
"""The IDs that the lab's EC2 gives its first subnet and security group for this seed."""

IDENTITY = "identity.pem"
"""The file into which the lab writes the certificate that signs its machines' identity documents."""

AWS = "aws.env"
"""The file with the environment that leads the controller to the lab's EC2."""

ENDPOINT = "AWS_ENDPOINT_URL"

_PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral ports, so that no outgoing connection takes a port before its server listens."""


def refuse_without_lab(packages: Sequence[str] = ("moto", "werkzeug")) -> None:
    """Raise NotFinishedError if a package is missing that the lab needs."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise NotFinishedError(
            f"the demo needs {', '.join(missing)}, which the extra `demo` brings: "
            "pipx install --force 'gpu-runner-autoscaler[demo]'"
        )


def write_demo(folder: Path, fleet_file: Path, say: Say) -> None:
    """Write the files of the demo. Raises NotWrittenError, also for a folder of another fleet."""
    if fleet_file.exists():
        if not (folder / AWS).exists():
            raise NotWrittenError(f"{fleet_file}: is not of a demo; name another folder")
        return
    github, ec2, controller = _free_ports(3)
    chosen = choices.Choices(
        fleet="demo",
        api_url=f"http://127.0.0.1:{github}",
        owner=OWNER,
        repository=None,
        personal=False,
        runner_group=GROUP,
        repositories=(),
        machines=choices.Ec2Choice(
            REGION, (SUBNET,), (SECURITY_GROUP,), INSTANCE_TYPE, identity_certificates=(IDENTITY,)
        ),
        public_url=f"https://127.0.0.1:{controller}",
        webhook=None,
    )
    for line in write_missing(folder, chosen.fleet, chosen.host, datetime.now(UTC)):
        say(line)
    if not (folder / choices.KEY).exists():
        write_new(folder / choices.KEY, _private_key())
    # A run that was stopped before fleet.yaml has other ports.
    (folder / AWS).unlink(missing_ok=True)
    write_new(folder / AWS, _environment(ec2).encode(), PUBLIC)
    write_new(fleet_file, chosen.text(APP_ID).encode())
    say(
        f"wrote {folder / choices.KEY}, {folder / AWS} and {fleet_file}: for the lab's GitHub and EC2"
    )


def demo_steps(folder: Path, fleet_file: Path) -> list[str]:
    """Return the commands that run the demo, in order."""
    where, file, aws = (shlex.quote(str(one)) for one in (folder, fleet_file, folder / AWS))
    return [
        f"in a first terminal: autoscaler-lab {where}",
        "wait until it says that GitHub and EC2 are up",
        f"in a second terminal: env $(cat {aws}) autoscaler serve -c {file}",
        f"in a third terminal: autoscaler status -c {file}",
        f"to end it: Ctrl-C in the second terminal, then in the first, and rm -r {where}",
    ]


def _environment(port: int) -> str:
    """Return the variables of the controller: the lab's EC2, and nothing of this host's AWS or proxy."""
    variables = {
        ENDPOINT: f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "lab",
        "AWS_SECRET_ACCESS_KEY": "lab",  # not a secret: the lab accepts any value
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
        "no_proxy": "127.0.0.1",
    }
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _private_key() -> bytes:
    return rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _free_ports(count: int) -> list[int]:
    """Return different ports of loopback on which nothing listens now. Raises NotFinishedError."""
    found = list(islice(filter(_is_free, random.sample(_PORTS, len(_PORTS))), count))
    if len(found) < count:
        raise NotFinishedError("127.0.0.1 has no free port between 20000 and 32000")
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
