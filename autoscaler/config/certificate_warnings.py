"""Warns if machines will refuse the server's certificate: its names, its validity, the CA that signed it."""

import ssl
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509 import verification

from autoscaler.config.checks.contradictions import text
from autoscaler.config.checks.named_files import named_file
from autoscaler.config.files.pem import PemError, certificates, private_key, read_pem
from autoscaler.config.problems import Problem, printable, show
from autoscaler.config.reading.document import Document
from autoscaler.config.reading.values import valid
from autoscaler.config.settings.shapes import PublicUrl

SOON = timedelta(days=14)
"""Let's Encrypt's clients renew 30 days before the end: a renewal that has not come by then failed."""

_SHOWN_NAMES = 5

_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME (OpenSSL, X509_VERIFY_PARAM_set_flags(3))."""


def certificate_warnings(document: Document, folder: Path, now: datetime) -> Iterator[Problem]:
    """Return the warnings about `server.tls`. `certificates.tls_problems` reports unusable files."""
    chain = _certificates(document, folder, "certificate_file")
    authorities = _certificates(document, folder, "ca_file")
    if chain:
        yield from _validity(document, "certificate_file", chain[0], now)
        yield from _name(document, chain[0])
    if authorities:
        # While a CA is replaced, the file has the old one and the new one.
        last = max(authorities, key=lambda one: one.not_valid_after_utc)
        yield from _validity(document, "ca_file", last, now)
    if chain and authorities:
        yield from _trust(document, folder)
    elif chain and named_file(document, folder, "server", "tls", "ca_file") is None:
        yield from _own_authority(document, chain[0])


def _certificates(document: Document, folder: Path, key: str) -> list[x509.Certificate]:
    file = named_file(document, folder, "server", "tls", key)
    try:
        return certificates(read_pem(file)) if file is not None else []
    except PemError:
        return []


def _validity(
    document: Document, key: str, one: x509.Certificate, now: datetime
) -> Iterator[Problem]:
    start, end = one.not_valid_before_utc, one.not_valid_after_utc
    fix = "renew it, and name the new file"
    if end <= now:
        what = f"expired at {_time(end)}, and machines refuse it"
    elif start > now:
        what = f"is not valid before {_time(start)}, and machines refuse it until then"
        fix = "correct the clock of this host, or use a certificate that is valid now"
    elif end - now < SOON:
        what = f"expires at {_time(end)}"
    else:
        return
    path = ("server", "tls", key)
    shown = show(text(document.root, *path))
    yield document.problem(path, f"{shown} {what}", fix, warning=True)


def _own_authority(document: Document, certificate: x509.Certificate) -> Iterator[Problem]:
    """Warn of a certificate that signed itself: without `ca_file`, machines trust the CAs of their image."""
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return
    path = ("server", "tls", "certificate_file")
    shown = show(text(document.root, *path))
    what = f"{shown} is signed by itself, and machines refuse it unless their image trusts it"
    fix = (
        "name it as ca_file, too: machines then trust it. GitHub does not: its webhooks need a "
        "proxy with a public certificate in front of webhook_listen"
    )
    yield document.problem(path, what, fix, warning=True)


def _trust(document: Document, folder: Path) -> Iterator[Problem]:
    tls = ("server", "tls")
    keys = ("certificate_file", "key_file", "ca_file")
    certificate, key, ca = (named_file(document, folder, *tls, one) for one in keys)
    if certificate is None or key is None or ca is None:
        return
    try:
        private_key(read_pem(key))
        reason = _refusal(certificate, key, ca)
    except (PemError, ssl.SSLError):
        return
    if reason is not None:
        server, authority = (show(text(document.root, *tls, one)) for one in (keys[0], keys[2]))
        what = f"{server} is not signed by a CA in {authority}, and machines refuse it: {reason}"
        fix = f"name the CA that signed it, or append the intermediate certificates to {server}"
        yield document.problem((*tls, "ca_file"), what, fix, warning=True)


def _refusal(certificate: Path, key: Path, ca: Path) -> str | None:
    """Return why a machine refuses the certificates, apart from their names and times, or None.

    Shakes hands in memory, with the TLS library of the agent and the CA file alone, as the agent does. Newer
    releases of Python are stricter than this. Raises SSLError if a file cannot be used.
    """
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate, key)
    client = ssl.create_default_context(cafile=ca)
    client.check_hostname = False
    client.verify_flags = ssl.VerifyFlags(_NO_CHECK_TIME | ssl.VERIFY_X509_TRUSTED_FIRST)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = client.wrap_bio(to_client, to_server)
    listener = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (caller, listener, caller):
        try:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return None


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _name(document: Document, certificate: x509.Certificate) -> Iterator[Problem]:
    path = ("server", "public_url")
    url = valid(document.root, PublicUrl, *path)
    host = urlsplit(url).hostname if url is not None else None
    if not host or _has_name(certificate, host):
        return
    file = show(text(document.root, "server", "tls", "certificate_file"))
    what = (
        f"{show(host)} is not among the names of the certificate in {file}: {_names(certificate)}"
    )
    fix = "write one of its names, or create a certificate with this subjectAltName"
    yield document.problem(path, what, fix, warning=True)


def _has_name(certificate: x509.Certificate, host: str) -> bool:
    """Return whether the certificate is for this host, or True if the library cannot say so.

    It trusts the certificate itself, at a time when it is valid, so only the names decide. Docs:
    https://cryptography.io/en/latest/x509/verification/
    """
    leaf = verification.ExtensionPolicy.permit_all().require_present(
        x509.SubjectAlternativeName, verification.Criticality.AGNOSTIC, None
    )
    try:
        verifier = (
            verification.PolicyBuilder()
            .store(verification.Store([certificate]))
            .time(certificate.not_valid_before_utc)
            .extension_policies(
                ee_policy=leaf, ca_policy=verification.ExtensionPolicy.webpki_defaults_ca()
            )
            .build_server_verifier(_subject(host))
        )
        verifier.verify(certificate, [])
    except verification.VerificationError as error:
        return "subjectAltName" not in str(error)
    except ValueError:
        return True  # Such as a host with an underscore, which DNS allows.
    return True


def _subject(host: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _names(certificate: x509.Certificate) -> str:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return "it has no subjectAltName"
    names = [*found.get_values_for_type(x509.DNSName)]
    names += map(str, found.get_values_for_type(x509.IPAddress))
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return printable(", ".join(names[:_SHOWN_NAMES]) + more)
