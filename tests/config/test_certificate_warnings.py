"""Certificates that machines will refuse: their names, and their time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.config import ConfigurationError, Problem
from tests.config.fleet_file import EXAMPLE, Folder
from tests.config.keys import INTERMEDIATE, authority, certificate, curve_key, pem, rsa_key

HOST = "fleet.internal.example"
CA = curve_key("authority")


def signed(*hosts: str, **times: Any) -> str:
    """A certificate of the server, signed by the CA in the file for machines."""
    return certificate(curve_key(), *hosts, signed_by=CA, **times)


def warnings(folder: Folder, host: str = HOST) -> tuple[Problem, ...]:
    file = folder.path / "fleet.yaml"
    file.write_text(EXAMPLE.read_text().replace(HOST, host))
    return load_for_service(file).warnings


@pytest.mark.case(
    "a certificate for other names than the host of public_url",
    topic="Operators' files",
    source="RFC 9525",
)
@pytest.mark.parametrize(
    ("names", "host", "right"),
    [
        ((HOST,), HOST, True),
        (("*.internal.example",), HOST, True),
        ((HOST, "10.0.0.7"), "10.0.0.7", True),
        (("fd00::7",), "[fd00::7]", True),
        (("*.example",), HOST, False),
        (("other.example",), HOST, False),
        ((HOST,), "10.0.0.7", False),
        ((), HOST, False),
    ],
)
def test_a_certificate_without_the_host_of_the_public_url_is_a_warning(
    folder: Folder, names: tuple[str, ...], host: str, right: bool
) -> None:
    (folder.path / "server.pem").write_text(signed(*names))
    found = warnings(folder, host)
    assert [one.key for one in found] == ["server.public_url"] * (not right)
    for one in found:
        said = ", ".join(names) or "it has no subjectAltName"
        assert one.what == (
            f'"{host}" is not among the names of the certificate in "server.pem": {said}'
        )
        assert "create a certificate" in one.fix


@pytest.mark.case(
    "a certificate that has expired, soon expires, or is not valid yet",
    topic="Operators' files",
    source="RFC 5280",
)
@pytest.mark.parametrize(
    ("first", "last", "what"),
    [
        (-400, -1, "expired at "),
        (1, 90, "is not valid before "),
        (-76, 13, "expires at "),
        (-75, 15, None),
    ],
)
@pytest.mark.parametrize(
    ("file", "key"), [("server.pem", "certificate_file"), ("ca.pem", "ca_file")]
)
def test_the_time_of_a_certificate_is_checked(
    folder: Folder, file: str, key: str, first: int, last: int, what: str | None
) -> None:
    start = datetime.now(UTC) + timedelta(days=first)
    times: dict[str, Any] = {"start": start, "days": last - first}
    made = authority(CA, **times) if file == "ca.pem" else signed(HOST, **times)
    (folder.path / file).write_text(made)
    found = warnings(folder)
    assert [one.key for one in found] == [f"server.tls.{key}"] * (what is not None)
    for one in found:
        assert one.what.startswith(f'"{file}" {what}')
        assert one.fix


def test_an_expired_authority_beside_its_successor_is_accepted(folder: Folder) -> None:
    old = authority(curve_key("old"), start=datetime.now(UTC) - timedelta(days=9), days=1)
    (folder.path / "ca.pem").write_text(old + authority(CA))
    assert warnings(folder) == ()


@pytest.mark.case(
    "a CA file that did not sign the server's certificate, so that no machine can attest",
    topic="Operators' files",
    source="RFC 5280",
)
@pytest.mark.parametrize(
    ("server", "ca", "reason"),
    [
        (signed(HOST), authority(curve_key("other")), "unable to get local issuer certificate"),
        (signed(HOST), certificate(curve_key(), HOST), "unable to get local issuer certificate"),
        (certificate(curve_key(), HOST), authority(CA), "self-signed certificate"),
        (signed(HOST), authority(curve_key("other")) + authority(CA), None),
        (signed(HOST) + authority(CA), authority(CA), None),
        (certificate(curve_key(), HOST), certificate(curve_key(), HOST), None),
    ],
)
def test_a_ca_file_that_did_not_sign_the_certificate_is_a_warning(
    folder: Folder, server: str, ca: str, reason: str | None
) -> None:
    (folder.path / "server.pem").write_text(server)
    (folder.path / "ca.pem").write_text(ca)
    found = warnings(folder)
    assert [one.key for one in found] == ["server.tls.ca_file"] * (reason is not None)
    for one in found:
        start = '"server.pem" is not signed by a CA in "ca.pem", and machines refuse it: '
        assert one.what.startswith(start)
        assert reason is not None
        assert reason in one.what.replace("self signed", "self-signed")  # OpenSSL 1.1.1
        assert one.fix == (
            'name the CA that signed it, or append the intermediate certificates to "server.pem"'
        )


@pytest.mark.parametrize("own", [True, False])
def test_a_certificate_that_signed_itself_needs_a_ca_file(folder: Folder, own: bool) -> None:
    """Without `ca_file`, a machine trusts only the CAs of its image."""
    made = certificate(curve_key(), HOST) if own else signed(HOST)
    (folder.path / "server.pem").write_text(made)
    file = folder.path / "fleet.yaml"
    file.write_text(EXAMPLE.read_text().replace(", ca_file: ca.pem}", "}"))
    found = load_for_service(file).warnings
    assert [one.key for one in found] == ["server.tls.certificate_file"] * own
    for one in found:
        assert (
            one.what
            == '"server.pem" is signed by itself, and machines refuse it unless their image trusts it'
        )
        assert one.fix == (
            "name it as ca_file, too: machines then trust it. GitHub does not: its webhooks need a "
            "proxy with a public certificate in front of webhook_listen"
        )


def test_a_missing_intermediate_certificate_is_a_warning(folder: Folder) -> None:
    intermediate = authority(rsa_key(), signed_by=CA)
    alone = certificate(curve_key(), HOST, signed_by=rsa_key(), issuer=INTERMEDIATE)
    (folder.path / "server.pem").write_text(alone)
    assert [one.key for one in warnings(folder)] == ["server.tls.ca_file"]
    (folder.path / "server.pem").write_text(alone + intermediate)
    assert warnings(folder) == ()


def test_an_expired_certificate_is_not_also_one_of_another_ca(folder: Folder) -> None:
    start = datetime.now(UTC) - timedelta(days=9)
    (folder.path / "server.pem").write_text(signed(HOST, start=start, days=1))
    (folder.path / "ca.pem").write_text(authority(CA, start=start, days=1))
    keys = sorted(one.key for one in warnings(folder))
    assert keys == ["server.tls.ca_file", "server.tls.certificate_file"]


def test_an_unusable_key_or_ca_file_is_reported_once(folder: Folder) -> None:
    for name, content in (("server.key", pem(curve_key("other"))), ("ca.pem", "x")):
        kept = (folder.path / name).read_text()
        (folder.path / name).write_text(content)
        (folder.path / "fleet.yaml").write_text(EXAMPLE.read_text())
        with pytest.raises(ConfigurationError) as error:
            load_for_service(folder.path / "fleet.yaml")
        assert len(error.value.problems) == 1
        assert error.value.warnings == ()
        (folder.path / name).write_text(kept)
