"""Certificates that machines will refuse: their names, and their time."""

from datetime import UTC, datetime, timedelta

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.config import Problem
from tests.config.fleet_file import EXAMPLE, Folder
from tests.config.keys import certificate, curve_key

HOST = "fleet.internal.example"


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
    (folder.path / "server.pem").write_text(certificate(curve_key(), *names))
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
    pem = certificate(curve_key(), HOST, start=start, days=last - first)
    (folder.path / file).write_text(pem)
    found = warnings(folder)
    assert [one.key for one in found] == [f"server.tls.{key}"] * (what is not None)
    for one in found:
        assert one.what.startswith(f'"{file}" {what}')
        assert one.fix


def test_an_expired_authority_beside_its_successor_is_accepted(folder: Folder) -> None:
    old = certificate(curve_key(), start=datetime.now(UTC) - timedelta(days=9), days=1)
    (folder.path / "ca.pem").write_text(old + certificate(curve_key()))
    assert warnings(folder) == ()
