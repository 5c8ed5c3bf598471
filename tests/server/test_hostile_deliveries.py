"""Bad deliveries on /webhook over a real socket, with the real signature, parser and store.

Whatever is refused with 4xx leaves nothing behind: the file of the store is looked into.
"""

import hashlib
import json

import pytest

from tests.server.fronts import BODY, JOB, SECRETS, Front, headers, signature


@pytest.mark.case(
    "two webhook secrets during a rotation",
    topic="Operators' files",
    source="GitHub: validating deliveries",
)
@pytest.mark.parametrize("secret", SECRETS)
async def test_deliveries_signed_with_either_current_secret_are_stored(
    front: Front, secret: bytes
) -> None:
    """This server stores valid deliveries, so the tests below can fail."""
    assert await front.send(BODY, headers(BODY, signature=signature(BODY, secret))) == 202
    assert front.stored() == ["0b989ba4-242f-11e5-81e1-c7b6966d2516"]


@pytest.mark.case(
    "a redelivery under the same id has another body",
    topic="GitHub's events",
    source="GitHub: redelivering",
)
async def test_a_replayed_body_with_a_future_id_does_not_block_that_delivery(
    front: Front,
) -> None:
    """The signature covers only the body, so an attacker can use an id first, but cannot block its delivery."""
    captured = json.dumps(JOB | {"action": "completed"}).encode()
    assert await front.send(captured, headers(captured)) == 202
    assert await front.send(BODY, headers(BODY)) == 202
    assert await front.send(BODY, headers(BODY)) == 200
    assert len(front.stored()) == 2


NOT_SIGNED_BY_GITHUB: dict[str, bytes | None] = {
    "unsigned": None,
    "empty": b"",
    "another body's": signature(BODY + b" "),
    "another secret's": signature(BODY, b"a secret of another App"),
    "an empty secret's": signature(BODY, b""),
    "sha1 under its own name": signature(BODY, algorithm="sha1"),
    "sha1 named sha256": b"sha256=" + signature(BODY, algorithm="sha1")[5:],
    "sha512": signature(BODY, algorithm="sha512"),
    "a plain hash": b"sha256=" + hashlib.sha256(BODY).hexdigest().encode(),
    "without its algorithm": signature(BODY)[7:],
    "in capitals": signature(BODY).upper(),
    "cut short": signature(BODY)[:-1],
    "one digit more": signature(BODY) + b"0",
    "two in one header": signature(BODY) + b", " + signature(BODY),
    "non-ASCII, Latin-1": b"sha256=" + b"\xe9" * 64,
    "non-ASCII, UTF-8": b"sha256=" + "\uff11".encode() * 64,
    "very long": b"sha256=" + b"0" * 1_900,
}


@pytest.mark.case(
    "unsigned and wrongly signed deliveries, and signatures that are not ASCII",
    topic="Hostile input",
    source="GitHub: validating deliveries; Python: hmac",
)
@pytest.mark.parametrize("kind", NOT_SIGNED_BY_GITHUB)
async def test_a_body_whose_signature_is_wrong_is_answered_401(front: Front, kind: str) -> None:
    given = headers(BODY, signature=NOT_SIGNED_BY_GITHUB[kind])
    assert await front.send(BODY, given) == 401
    assert front.stored() == []


@pytest.mark.case(
    "`X-Hub-Signature` (sha1) proves nothing",
    topic="Hostile input",
    source="GitHub: validating deliveries; gidgethub",
)
async def test_a_delivery_with_only_the_sha1_header_is_answered_401(front: Front) -> None:
    old = ((b"X-Hub-Signature", signature(BODY, algorithm="sha1")),)
    assert await front.send(BODY, headers(BODY, signature=None) + old) == 401
    assert front.stored() == []


@pytest.mark.case(
    "one bit of the body changed",
    topic="Hostile input",
    source="GitHub: validating deliveries",
)
@pytest.mark.parametrize("position", range(0, len(BODY), 29))
async def test_one_bit_of_the_body_changed_is_answered_401(front: Front, position: int) -> None:
    changed = bytearray(BODY)
    changed[position] ^= 1
    assert await front.send(bytes(changed), headers(BODY)) == 401
    assert front.stored() == []


DEEP = 100_000
MALFORMED = {
    "empty": b"",
    "not JSON": b"{",
    "no object": b"[]",
    "two objects": BODY + BODY,
    "cut off": BODY[:-2],
    "not UTF-8": BODY.replace(b"linux-gpu", b"\xff\xfe"),
    "UTF-16": json.dumps(JOB).encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + BODY,
    "deeply nested lists": b"[" * DEEP + b"]" * DEEP,
    "deeply nested objects": b'{"action":"queued","x":' + b'{"x":' * DEEP + b"1" + b"}" * DEEP,
    "deep in a field that is read": BODY.replace(b'["self-hosted"', b"[" * DEEP + b'"self-hosted"'),
    "an id that is text": BODY.replace(b"29679449", b'"29679449"'),
    "an id of 65 bits": BODY.replace(b"29679449", b"18446744073709551616"),
    "a number of 4,000 digits": BODY.replace(b"29679449", b"9" * 4_000),
    "an id that is no number": BODY.replace(b"29679449", b"NaN"),
    "a path as repository": BODY.replace(b"acme/widgets", b"acme/../../secrets"),
    "a job missing": b'{"action": "queued", "repository": {"full_name": "acme/widgets"}}',
}


@pytest.mark.case(
    "malformed, non-UTF-8, deeply nested, cut-off bodies that are signed: 400, nothing stored",
    topic="Hostile input",
    source="RFC 8259, 8.1",
)
@pytest.mark.parametrize("kind", MALFORMED)
async def test_a_signed_but_malformed_body_is_answered_400(front: Front, kind: str) -> None:
    body = MALFORMED[kind]
    assert await front.send(body, headers(body)) == 400
    assert front.stored() == []


@pytest.mark.case(
    "an unsigned body is not parsed",
    topic="Hostile input",
    source="GitHub: using webhooks",
)
@pytest.mark.parametrize("kind", MALFORMED)
async def test_a_malformed_body_that_is_not_signed_is_not_even_parsed(
    front: Front, kind: str
) -> None:
    body = MALFORMED[kind]
    assert await front.send(body, headers(body, signature=None)) == 401
    assert front.stored() == []
    assert front.telemetry.deliveries == {"bad_signature": 1}


@pytest.mark.case(
    "headers that are missing, odd or doubled",
    topic="Hostile input",
    source="RFC 9110, 5.3",
)
@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"delivery": None}, 400),
        ({"delivery": b""}, 400),
        ({"delivery": b"../../etc/passwd"}, 400),
        ({"delivery": b"a" * 65}, 400),
        ({"delivery": "é".encode()}, 400),
        ({"event": None}, 400),
        ({"event": b"Workflow Job"}, 400),
        ({"event": b"workflow_job\xff"}, 400),
        ({"type": None}, 415),
        ({"type": b"text/json"}, 415),
        ({"type": b"application/x-www-form-urlencoded"}, 415),
        ({"type": b"application/json; charset=utf-16"}, 202),  # the charset is ignored
        ({"type": b"\xff\xfe"}, 415),
    ],
)
async def test_invalid_headers_are_refused(
    front: Front, changes: dict[str, bytes | None], status: int
) -> None:
    assert await front.send(BODY, headers(BODY, **changes)) == status
    assert len(front.stored()) == (status == 202)


@pytest.mark.case(
    "headers that are missing, odd or doubled",
    topic="Hostile input",
    source="RFC 9110, 5.3",
)
@pytest.mark.parametrize("name", [b"X-Hub-Signature-256", b"X-GitHub-Delivery", b"X-GitHub-Event"])
@pytest.mark.parametrize("same", [True, False])
async def test_a_duplicate_header_is_refused(front: Front, name: bytes, same: bool) -> None:
    given = headers(BODY)
    value = dict(given)[name]
    again = ((name, value if same else value[:-1] + b"0"),)
    assert await front.send(BODY, given + again) in {400, 401}
    assert await front.send(BODY, again + given) in {400, 401}
    assert front.stored() == []
