"""The proof of this machine's identity."""

from __future__ import annotations

import binascii
import http.client

from autoscaler.agent.actions import TryAgain
from autoscaler.agent.boot.http_client import Link
from autoscaler.agent.limits import MOST_TOKEN


def metadata_proof(url: str, timeout: float) -> str:
    """Read the RSA-2048 signature of the instance identity document, base64 on one line.

    IMDSv2: a session token first (EC2 User Guide, "Use the Instance Metadata Service").
    Raises TryAgain.
    """
    link = Link(url)
    try:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = link.ask("PUT", "/latest/api/token", lifetime, b"", timeout)
        if token.status != http.client.OK:
            raise TryAgain(f"metadata service: token {token.status}")
        headers = {"X-aws-ec2-metadata-token": token.body.decode("ascii", "replace").strip()}
        path = "/latest/dynamic/instance-identity/rsa2048"
        proof = link.ask("GET", path, headers, None, timeout)
        if proof.status != http.client.OK:
            raise TryAgain(f"metadata service: identity {proof.status}")
        return "".join(proof.body.decode("ascii", "replace").split())
    finally:
        link.close()


def token_proof(path: str) -> str:
    """Read the pod's projected service account token, in base64. Raises TryAgain.

    Reads the file each time, because kubelet replaces the token before it expires (Kubernetes
    documentation, "Projected Volumes").
    """
    try:
        with open(path, "rb") as file:
            token = file.read(MOST_TOKEN).strip()
    except OSError as error:
        raise TryAgain(f"the pod's token: {error.strerror}") from error
    if not token:
        raise TryAgain("the pod's token: empty")
    return binascii.b2a_base64(token, newline=False).decode()
