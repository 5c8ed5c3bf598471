"""The hints for an operator about errors of AWS."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autoscaler.controller.ports.provider import OutcomeUnknownError, ProviderError
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.worker.channel import failure_of
from tests.config.fleet_file import Folder, changed
from tests.patience import PATIENCE


def refused(
    code: str, status: int = 403, *, sent: bool = True
) -> ProviderError | OutcomeUnknownError:
    answer = {"error": code, "message": "as AWS puts it", "sent": sent}
    return failure_of({**answer, "status": status, "retry_after": None})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("NoCredentialsError", "give the AWS SDK credentials"),
        ("ExpiredToken", "renew the credentials"),
        ("UnrecognizedClientException", "renew the credentials"),
        ("ExpiredTokenException", "renew the credentials"),
        ("UnauthorizedOperation", "docs/ec2.md#permissions"),
        ("AccessDenied", "docs/ec2.md#permissions"),
        ("AccessDeniedException", "docs/ec2.md#permissions"),
        ("InvalidSubnetID.NotFound", "correct subnets"),
    ],
)
def test_known_error_codes_have_a_hint(code: str, words: str) -> None:
    for sent in (True, False):
        found = refused(code, sent=sent).hint
        assert found is not None
        assert words in found


def test_other_error_codes_have_no_hint() -> None:
    assert refused("InvalidAMIID.NotFound").hint is None
    assert refused("InternalError", 500).hint is None
    assert ProviderError(FailureClass.UNKNOWN, "NoCredentialsError", "not of AWS").hint is None


@pytest.mark.case(
    "no AWS credentials",
    topic="Operators' files",
    source="boto3: credentials",
)
def test_without_credentials_the_hint_names_how_to_configure_them(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    file = folder.path / "fleet.yaml"
    github = "api_url: http://127.0.0.1:9\n  scopes: ["
    file.write_text(changed(("scopes: [", github)))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    nowhere = {"AWS_EC2_METADATA_DISABLED": "true", "HOME": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-m", "autoscaler.cli", "serve", "-c", str(file)],
        env=clean | nowhere,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "provider_not_opened" in line)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
    assert "instance role" in json.loads(said)["hint"]
    assert "NoCredentialsError" in json.loads(said)["error"]
