"""Listen addresses as fleet.yaml writes them."""

import pytest

from autoscaler.config.settings.scalars import parse_address
from autoscaler.model.identifiers import Address


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0.0.0.0:8443", Address("0.0.0.0", 8443)),
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:80", Address("::1", 80)),
        ("[::]:65535", Address("::", 65535)),
    ],
)
def test_an_address_is_read_and_written_the_same(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "8443", ":8443", "host:", "host:65536", "host:-1", "host:1x", "::1:80", "[x]:80"]
)
def test_an_invalid_listen_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no host|no port|not an IPv6 address|not a host name"):
        parse_address(text)
