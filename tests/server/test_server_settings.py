"""Listen addresses as fleet.yaml writes them."""

import pytest

from autoscaler.server.listening.settings import Address


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
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "8443", ":8443", "host:", "host:65536", "host:-1", "host:1x", "::1:80", "[x]:80"]
)
def test_an_invalid_listen_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"host:port|At least|IPv6|'x'"):
        Address.parse(text)
