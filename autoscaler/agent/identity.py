"""The proof of this machine's identity."""

from __future__ import annotations

import http.client

from autoscaler.agent.actions import Again
from autoscaler.agent.http_client import Link


def metadata_proof(url: str, timeout: float) -> str:
    """Read the RSA-2048 signature of the instance identity document, base64 on one line. Raises Again.

    IMDSv2: a session token first (EC2 User Guide, "Use the Instance Metadata Service").
    """
    link = Link(url)
    try:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = link.ask("PUT", "/latest/api/token", lifetime, b"", timeout)
        if token.status != http.client.OK:
            raise Again(f"metadata service: token {token.status}")
        headers = {"X-aws-ec2-metadata-token": token.body.decode("ascii", "replace").strip()}
        path = "/latest/dynamic/instance-identity/rsa2048"
        proof = link.ask("GET", path, headers, None, timeout)
        if proof.status != http.client.OK:
            raise Again(f"metadata service: identity {proof.status}")
        return "".join(proof.body.decode("ascii", "replace").split())
    finally:
        link.close()
