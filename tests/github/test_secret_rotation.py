"""Two webhook secrets are valid while one replaces the other: in the file and at the endpoint."""

import hashlib
import hmac
import json
from pathlib import Path

import pytest

from autoscaler.config import read_webhook_secrets
from autoscaler.github.webhook import parse_workflow_job, verify_signature
from autoscaler.server.webhook import WebhookEndpoint
from tests.config.fleet_file import EXAMPLE, Folder
from tests.server.doubles import reading
from tests.server.fakes import Backstage, delivery_headers, running

BODY = json.dumps(
    {
        "action": "queued",
        "workflow_job": {"id": 7, "labels": ["gpu"]},
        "repository": {"full_name": "acme/widgets"},
    }
).encode()


def secrets_in(path: Path, content: str) -> list[bytes]:
    """Return the secrets of a `webhook_secret_file` with this content."""
    folder = Folder(path)
    configuration = folder.load(EXAMPLE.read_text())
    (path / "webhook-secret").write_text(content)
    return [secret.get_secret_value() for secret in read_webhook_secrets(configuration)]


@pytest.mark.case(
    "two webhook secrets during a rotation",
    topic="Operators' files",
    source="GitHub: validating deliveries",
)
@pytest.mark.parametrize(
    ("live", "believed"),
    [
        ("old\n", ["old"]),
        ("old\nnew\n", ["old", "new"]),
        ("new\r\nold", ["old", "new"]),
        ("\nnew\n\n", ["new"]),
    ],
    ids=["before", "both", "both, other way round", "after"],
)
async def test_a_delivery_is_accepted_if_any_current_secret_signed_it(
    tmp_path: Path, live: str, believed: list[str]
) -> None:
    secrets = secrets_in(tmp_path, live)
    behind = Backstage()
    endpoint = WebhookEndpoint(
        lambda body, header: verify_signature(body, header, secrets),
        reading(parse_workflow_job, behind.inbox.accept),
        behind.clock,
        behind.telemetry,
    )
    async with running(behind, webhook=endpoint) as caller:
        answers = {}
        for secret in ("old", "new", "never", ""):
            proof = "sha256=" + hmac.new(secret.encode(), BODY, hashlib.sha256).hexdigest()
            headers = delivery_headers(BODY, f"by-{secret}") | {"X-Hub-Signature-256": proof}
            answers[secret] = (await caller.post("/webhook", data=BODY, headers=headers)).status
    assert {secret for secret, status in answers.items() if status == 202} == set(believed)
    assert {status for secret, status in answers.items() if secret not in believed} == {401}
    assert len(behind.inbox.kept) == len(believed)
