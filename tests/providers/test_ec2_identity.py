"""Which instance identity documents are accepted."""

import base64
from pathlib import Path

import pytest

from autoscaler.controller.ports.provider import ProofRefusedError
from autoscaler.providers.ec2.identity.documents import (
    MAX_PROOF_BYTES,
    IdentityVerifier,
    load_certificates,
    pinned_certificates,
    pinned_regions,
)
from tests.providers.aws_documents import US_WEST_1, US_WEST_2
from tests.providers.documents import ACCOUNT, REGION, Signer, document, indefinite, signed

HONEST = Signer(serial=7)
FOREIGN = Signer(serial=8)
SAME_SERIAL = Signer(serial=7)
VERIFIER = IdentityVerifier(REGION, (HONEST.certificate,))


def refusal(proof: bytes, verifier: IdentityVerifier = VERIFIER, account: str = ACCOUNT) -> str:
    with pytest.raises(ProofRefusedError) as caught:
        verifier.verify(proof, account)
    return caught.value.reason


def test_a_document_signed_by_a_pinned_certificate_is_accepted() -> None:
    content = document()
    proven = VERIFIER.verify(signed(content, HONEST.signer_info(content)), ACCOUNT)
    assert proven.provider_id == "i-078517ca8a70a1dde"
    assert proven.image == "ami-0fa9e1f64142cde17"
    assert proven.launch_time == "2026-09-03T21:25:44Z"


@pytest.mark.case(
    "an identity document in BER of indefinite lengths, as AWS sends it",
    topic="Hostile input",
    source="RFC 5652, 5.4; gravitational/teleport join_ec2_test.go",
)
def test_indefinite_lengths_are_accepted() -> None:
    content = document()
    proof = indefinite(content, HONEST.signer_info(content))
    assert VERIFIER.verify(proof, ACCOUNT).provider_id == "i-078517ca8a70a1dde"


def test_a_signed_text_that_is_not_json_is_malformed() -> None:
    for content, why in (
        (b"{", "the content is not JSON"),
        (b"[]", "the content is not a JSON object"),
    ):
        with pytest.raises(ProofRefusedError, match=why) as caught:
            VERIFIER.verify(signed(content, HONEST.signer_info(content)), ACCOUNT)
        assert caught.value.reason == "malformed"


def test_the_pinned_regions_are_named_as_aws_names_them() -> None:
    assert {"us-east-1", "eu-west-1"} < set(pinned_regions())
    assert not [region for region in pinned_regions() if "." in region]


def test_base64_as_the_metadata_service_gives_it_is_read() -> None:
    content = document()
    proof = base64.encodebytes(signed(content, HONEST.signer_info(content)))
    assert VERIFIER.verify(proof, ACCOUNT).provider_id == "i-078517ca8a70a1dde"


@pytest.mark.case(
    "an identity document in BER of indefinite lengths, as AWS sends it",
    topic="Hostile input",
    source="RFC 5652, 5.4; gravitational/teleport join_ec2_test.go",
)
@pytest.mark.parametrize(
    ("region", "proof", "account", "machine"),
    [
        ("us-west-2", US_WEST_2, "278576220453", "i-078517ca8a70a1dde"),
        ("us-west-1", US_WEST_1, "883474662888", "i-01b940c45fd11fe74"),
    ],
)
def test_documents_that_aws_signed_are_accepted_only_in_their_region(
    region: str, proof: bytes, account: str, machine: str
) -> None:
    verifier = IdentityVerifier(region, pinned_certificates(region))
    proven = verifier.verify(proof, account)
    assert proven.provider_id == machine
    assert proven.launch_time.startswith("2021-09-")
    assert refusal(proof, verifier) == "account"
    elsewhere = IdentityVerifier("us-east-1", pinned_certificates("us-east-1"))
    assert refusal(proof, elsewhere, account) == "certificate"


def test_an_aws_document_with_any_changed_byte_is_refused() -> None:
    verifier = IdentityVerifier("us-west-2", pinned_certificates("us-west-2"))
    raw = base64.b64decode(US_WEST_2)
    start = raw.index(b"accountId")
    for at in range(start, start + 400, 7):
        changed = bytearray(raw)
        changed[at] ^= 1
        assert refusal(bytes(changed), verifier, "278576220453") in {"signature", "malformed"}


def test_another_account_and_another_region_are_refused() -> None:
    other_account = document(accountId="999999999999")
    other_region = document(region="eu-west-1")
    assert refusal(signed(other_account, HONEST.signer_info(other_account))) == "account"
    assert refusal(signed(other_region, HONEST.signer_info(other_region))) == "region"


@pytest.mark.case(
    "an identity document signed by a certificate of the attacker's inside it",
    topic="Hostile input",
    source="EC2: instance identity documents; openssl-smime",
)
def test_a_document_signed_by_its_own_foreign_certificate_is_refused() -> None:
    content = document()
    forged = signed(content, FOREIGN.signer_info(content), embedded=FOREIGN.certificate)
    assert refusal(forged) == "certificate"


def test_a_foreign_certificate_with_the_name_of_the_pinned_one_is_refused() -> None:
    content = document()
    info = SAME_SERIAL.signer_info(content)
    assert refusal(signed(content, info, embedded=SAME_SERIAL.certificate)) == "signature"


def test_a_foreign_signature_beside_a_pinned_certificate_is_refused() -> None:
    content = document()
    info = FOREIGN.signer_info(content)
    info["sid"] = HONEST.identifier()
    forged = signed(content, info, embedded=HONEST.certificate)
    with pytest.raises(ProofRefusedError, match="does not match the pinned certificate") as refused:
        VERIFIER.verify(forged, ACCOUNT)
    assert refused.value.reason == "signature"


@pytest.mark.case(
    "an identity document beside the signed one",
    topic="Hostile input",
    source="EC2: instance identity documents",
)
def test_content_other_than_what_was_signed_is_refused() -> None:
    honest = HONEST.signer_info(document())
    assert refusal(signed(document(instanceId="i-0123456789abcdef0"), honest)) == "signature"


def test_a_valid_signature_over_another_digest_is_refused() -> None:
    content = document()
    assert refusal(signed(content, HONEST.signer_info(content, b"\x01" * 32))) == "signature"


def test_a_second_signer_is_refused() -> None:
    content = document()
    both = signed(content, HONEST.signer_info(content), FOREIGN.signer_info(content))
    assert refusal(both) == "malformed"


def test_a_signature_without_signed_attributes_is_refused() -> None:
    content = document()
    info = HONEST.signer_info(content)
    del info["signed_attrs"]
    assert refusal(signed(content, info)) == "malformed"


def test_every_truncation_is_refused() -> None:
    content = document()
    for proof in (
        signed(content, HONEST.signer_info(content)),
        indefinite(content, HONEST.signer_info(content)),
    ):
        for length in range(0, len(proof), 13):
            assert refusal(proof[:length]) == "malformed"
        assert refusal(proof[:-1]) == "malformed"


def test_trailing_garbage_is_refused() -> None:
    content = document()
    info = HONEST.signer_info(content)
    assert refusal(signed(content, info) + b"\x00") == "malformed"
    assert refusal(indefinite(content, info) + b"\x00\x00") == "malformed"
    assert refusal(signed(content, info) + signed(content, info)) == "malformed"


def test_an_oversized_proof_is_refused_and_one_of_the_largest_size_is_not() -> None:
    room = document(padding="x" * 3_000)
    proof = signed(room, HONEST.signer_info(room))
    assert len(proof) <= MAX_PROOF_BYTES
    VERIFIER.verify(proof, ACCOUNT)
    large = document(padding="x" * MAX_PROOF_BYTES)
    assert refusal(signed(large, HONEST.signer_info(large))) == "malformed"


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"{",
        b"[" * 2000,
        b"\xff",
        document(instanceId="../../etc"),
        document(instanceId=5),
        document(pendingTime="yesterday"),
        document(imageId=None),
        document(accountId=int(ACCOUNT)),
    ],
)
def test_a_signed_document_of_another_shape_is_refused(content: bytes) -> None:
    assert refusal(signed(content, HONEST.signer_info(content))) == "malformed"


def test_nested_indefinite_lengths_are_refused_without_harm() -> None:
    assert refusal(b"\x30\x80" * 2000) == "malformed"


@pytest.mark.case(
    "an identity document in thousands of pieces",
    topic="Hostile input",
    source="CWE-407",
)
def test_an_identity_document_in_too_many_pieces_is_refused() -> None:
    """Each piece costs time, and any client can send them: 4 KiB took more than a millisecond."""
    content = document()
    info = HONEST.signer_info(content)
    assert refusal(indefinite(content, info, chunk=1)) == "malformed"
    assert refusal(signed(content, *[info] * 3)) == "malformed"
    assert refusal(b"\x30\x82\x0f\xf0" + b"\x05\x00" * 2_040) == "malformed"
    VERIFIER.verify(indefinite(content, info, chunk=16), ACCOUNT)


def test_a_tag_of_several_bytes_is_refused() -> None:
    content = document()
    proof = signed(content, HONEST.signer_info(content))
    assert refusal(proof + b"\x1f\x81\x01\x00") == "malformed"
    assert refusal(b"\x3f\x81\x01" + proof[1:]) == "malformed"


@pytest.mark.case(
    "identity documents of a region without a pinned certificate are refused",
    topic="Hostile input",
    source="EC2: certificates by region",
)
def test_a_region_without_a_certificate_refuses_every_proof() -> None:
    assert pinned_certificates("xx-nowhere-9") == ()
    content = document(region="xx-nowhere-9")
    proof = signed(content, HONEST.signer_info(content))
    assert refusal(proof, IdentityVerifier("xx-nowhere-9", ())) == "certificate"


def test_certificates_from_files_are_accepted_beside_those_of_the_region(tmp_path: Path) -> None:
    path = tmp_path / "lab.pem"
    path.write_bytes(HONEST.pem + FOREIGN.pem)
    pinned = pinned_certificates(REGION, [path])
    assert len(pinned) == 3
    content = document()
    verifier = IdentityVerifier(REGION, pinned)
    verifier.verify(signed(content, FOREIGN.signer_info(content)), ACCOUNT)


def test_a_certificate_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.pem: No such file"):
        pinned_certificates(REGION, [tmp_path / "absent.pem"])
    (tmp_path / "empty.pem").write_bytes(b"nothing\n")
    with pytest.raises(ValueError, match=r"empty\.pem: contains no readable PEM"):
        pinned_certificates(REGION, [tmp_path / "empty.pem"])


def test_a_region_name_cannot_be_a_path() -> None:
    with pytest.raises(ValueError, match="not the name of a region"):
        pinned_certificates("../us-east-1")


def test_the_regional_certificates_are_self_signed_rsa_2048_and_differ() -> None:
    folder = Path(load_certificates.__code__.co_filename).parent / "certificates"
    found = {
        path.stem: load_certificates(path.read_bytes(), path.name) for path in folder.glob("*.pem")
    }
    assert len(found) == 39
    for region, certificates in found.items():
        (one,) = certificates
        one.verify_directly_issued_by(one)
        assert one.public_key().key_size == 2048  # type: ignore[union-attr]
        assert one.not_valid_after_utc.year >= 2195, region
    assert len({one.serial_number for (one,) in found.values()}) == len(found)
