"""The metadata service as a machine sees it, and documents true and forged, checked by openssl."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from asn1crypto import cms

from lab.ec2.identity import IdentitySigner
from tests.lab.ec2.harness import Fixture, launched

TTL = "X-aws-ec2-metadata-token-ttl-seconds"
TOKEN = "X-aws-ec2-metadata-token"


class Machine:
    """What runs on one instance."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def token(self, ttl: str = "60") -> str:
        async with self._http.put(f"{self._url}/latest/api/token", headers={TTL: ttl}) as answer:
            assert answer.status == 200
            return await answer.text()

    async def get(self, path: str, token: str) -> tuple[int, bytes]:
        async with self._http.get(f"{self._url}/latest/{path}", headers={TOKEN: token}) as answer:
            return answer.status, await answer.read()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def openssl_accepts(folder: Path, signature: bytes, certificate: bytes) -> bytes | None:
    """The signed content, if openssl believes it with only this certificate; else None."""
    (folder / "signature").write_bytes(
        b"-----BEGIN PKCS7-----\n" + signature + b"\n-----END PKCS7-----\n"
    )
    (folder / "certificate").write_bytes(certificate)
    process = await asyncio.create_subprocess_exec(
        *("openssl", "smime", "-verify", "-in", "signature", "-inform", "PEM"),
        *("-certfile", "certificate", "-noverify", "-nointern"),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    content, _ = await process.communicate()
    return content if process.returncode == 0 else None


async def test_metadata_needs_the_instances_own_token(
    ec2: Fixture, http: aiohttp.ClientSession
) -> None:
    mine, other = (
        Machine(http, ec2.lab.metadata_url(name)) for name in launched(await ec2.fleet(2))
    )
    token = await mine.token()
    assert (await mine.get("meta-data/instance-id", ""))[0] == 401
    assert (await mine.get("meta-data/instance-id", "made-up"))[0] == 401
    assert (await other.get("meta-data/instance-id", token))[0] == 401
    assert (await mine.get("meta-data/instance-id", token))[0] == 200
    assert (await mine.get("meta-data/nothing", token))[0] == 404
    assert ec2.lab.metadata_requests == 6


@pytest.mark.parametrize("ttl", ["", "0", "21601", "-1", "soon"])
async def test_a_token_needs_a_proper_lifetime(
    ec2: Fixture, http: aiohttp.ClientSession, ttl: str
) -> None:
    (name,) = launched(await ec2.fleet(1))
    url = f"{ec2.lab.metadata_url(name)}/latest/api/token"
    async with http.put(url, headers={TTL: ttl}) as answer:
        assert answer.status == 400


async def test_a_machine_reads_its_user_data_and_document(
    ec2: Fixture, http: aiohttp.ClientSession
) -> None:
    (name,) = launched(await ec2.fleet(1))
    machine = Machine(http, ec2.lab.metadata_url(name))
    token = await machine.token()
    assert await machine.get("user-data", token) == (200, b"#!/bin/sh\n")
    assert await machine.get("meta-data/instance-id", token) == (200, name.encode())
    _, document = await machine.get("dynamic/instance-identity/document", token)
    (described,) = await ec2.described(InstanceIds=[name])
    fields = json.loads(document)
    assert fields["accountId"] == ec2.lab.account
    assert fields["region"] == ec2.lab.region
    assert fields["instanceId"] == name
    assert fields["imageId"] == ec2.image.id
    assert fields["instanceType"] == "g5.xlarge"
    assert fields["availabilityZone"] == ec2.network.zones[0]
    assert fields["architecture"] == "x86_64"
    assert fields["privateIp"] == described["PrivateIpAddress"]
    launch_time = described["LaunchTime"]
    assert launch_time.microsecond == 0
    assert fields["pendingTime"] == launch_time.strftime("%Y-%m-%dT%H:%M:%SZ")


async def test_a_machine_without_user_data_has_none(
    ec2: Fixture, http: aiohttp.ClientSession
) -> None:
    answer = await ec2.sdk(
        "run_instances",
        ImageId=ec2.image.id,
        InstanceType="t3.large",
        SubnetId=ec2.network.subnets[0],
        MinCount=1,
        MaxCount=1,
    )
    name = answer["Instances"][0]["InstanceId"]
    machine = Machine(http, ec2.lab.metadata_url(name))
    assert (await machine.get("user-data", await machine.token()))[0] == 404


async def test_an_unknown_instance_gets_no_metadata(
    ec2: Fixture, http: aiohttp.ClientSession
) -> None:
    url = ec2.lab.metadata_url("i-0123456789abcdef0")
    async with http.put(f"{url}/latest/api/token", headers={TTL: "60"}) as answer:
        assert answer.status == 404


async def test_the_signature_has_awss_form_and_is_valid(
    ec2: Fixture, http: aiohttp.ClientSession, tmp_path: Path
) -> None:
    (name,) = launched(await ec2.fleet(1))
    machine = Machine(http, ec2.lab.metadata_url(name))
    token = await machine.token()
    _, document = await machine.get("dynamic/instance-identity/document", token)
    _, signature = await machine.get("dynamic/instance-identity/rsa2048", token)
    assert b"-----" not in signature
    assert max(len(line) for line in signature.splitlines()) <= 76
    # The first bytes of every real one: indefinite lengths, SignedData, version 1, SHA-256.
    assert signature.startswith(
        b"MIAGCSqGSIb3DQEHAqCAMIACAQExDzANBglghkgBZQMEAgEFADCABgkqhkiG9w0BBwGggCSA"
    )
    signed = cms.ContentInfo.load(base64.b64decode(signature))["content"]
    (signer,) = signed["signer_infos"]
    assert signed["certificates"].native is None
    assert signer["signed_attrs"].native[-1]["type"] == "message_digest"
    assert len(signer["signature"].native) == 256
    assert await openssl_accepts(tmp_path, signature, ec2.lab.certificate_pem) == document


async def test_openssl_refuses_every_kind_of_forged_document(ec2: Fixture, tmp_path: Path) -> None:
    (name,) = launched(await ec2.fleet(1))
    true = ec2.lab.document(name)
    lie = ec2.lab.document(name, accountId="999999999999", pendingTime="2020-01-01T00:00:00Z")
    assert json.loads(lie)["accountId"] == "999999999999"
    forger = IdentitySigner.generate()
    pinned = ec2.lab.certificate_pem
    forgeries = {
        "other signer": forger.sign(true),
        "claims our certificate": forger.sign(true, claims=ec2.lab.signer),
        "embeds its own": forger.sign(lie, embed_certificate=True),
        "altered content": ec2.lab.signer.sign(true, shown=lie),
    }
    for kind, forged in forgeries.items():
        assert await openssl_accepts(tmp_path, forged, pinned) is None, kind
    # Each is well-formed, so openssl refuses it for the forgery.
    assert await openssl_accepts(tmp_path, forger.sign(true), forger.certificate_pem) == true
    assert await openssl_accepts(tmp_path, ec2.lab.signer.sign(lie), pinned) == lie
    embedded = cms.ContentInfo.load(base64.b64decode(forgeries["embeds its own"]))["content"]
    assert embedded["certificates"][0].chosen.serial_number == (forger.certificate.serial_number)
    assert embedded["encap_content_info"]["content"].native == lie


def test_keys_are_in_no_repr() -> None:
    assert repr(IdentitySigner.generate()).startswith("IdentitySigner(serial=")
