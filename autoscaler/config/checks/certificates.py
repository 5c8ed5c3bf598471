"""Checks that the server's certificate, its key and the CA file can be used, and that machines accept them.

Reads the files in `server.tls`, and shows none of their content.
"""

import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.files.pem import certificates, private_key, read_pem
from autoscaler.config.files.regular_files import UnusableFileError
from autoscaler.config.problems import KeyPath, Problem, printable, show

# OpenSSL's errors for a key that belongs to another certificate.
_MISMATCH = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}

SOON = timedelta(days=14)
"""Let's Encrypt's clients renew 30 days before the end: a renewal that has not come by then failed."""

_SHOWN_NAMES = 5

_OTHER_NAME = {62, 64}
"""X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH (OpenSSL, x509_vfy.h)."""

_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME (OpenSSL, X509_VERIFY_PARAM_set_flags(3))."""


def tls_problems(configuration: Configuration) -> Iterator[Problem]:
    """Return the errors of the files in `server.tls`. `named_files` reports missing files."""
    checks: dict[str, Callable[[bytes], object]] = {
        "certificate_file": certificates,
        "key_file": private_key,
        "ca_file": _authority,
    }
    usable: dict[str, Path] = {}
    for key, check in checks.items():
        file = _file(configuration, key)
        if file is None:
            continue
        try:
            check(read_pem(file))
        except UnusableFileError as error:
            yield _problem(configuration, key, error)
        else:
            usable[key] = file
    if "certificate_file" in usable and "key_file" in usable:
        try:
            _pair(configuration, usable["certificate_file"], usable["key_file"])
        except UnusableFileError as error:
            yield _problem(configuration, "key_file", error)


def certificate_warnings(configuration: Configuration, now: datetime) -> Iterator[Problem]:
    """Return why machines will refuse the server's certificate: its names, its times, the CA that signed it.

    `tls_problems` reports unusable files.
    """
    chain = _certificates(configuration, "certificate_file")
    authorities = _certificates(configuration, "ca_file")
    if chain:
        yield from _validity(configuration, "certificate_file", chain[0], now)
        yield from run_checks((_name,), configuration, chain[0])
    if authorities:
        # While a CA is replaced, the file has the old one and the new one.
        last = max(authorities, key=lambda one: one.not_valid_after_utc)
        yield from _validity(configuration, "ca_file", last, now)
    if chain and authorities:
        yield from _trust(configuration)
    elif chain and _file(configuration, "ca_file") is None:
        yield from _own_authority(configuration, chain[0])


def authority(configuration: Configuration) -> str | None:
    """Return the CA certificates for machines, or None if there is no usable `ca_file`."""
    file = _file(configuration, "ca_file")
    try:
        return _authority(read_pem(file)) if file is not None else None
    except UnusableFileError:
        return None  # `tls_problems` reports it


def _written(configuration: Configuration, key: str) -> str | None:
    """Return the name of a file in `server.tls`, or None if the key has no value."""
    server = getattr(configuration.settings, "server", None)
    name: str | None = getattr(getattr(server, "tls", None), key, None)
    return name


def _file(configuration: Configuration, key: str) -> Path | None:
    return configuration.readable_file(_written(configuration, key))


def _path(key: str) -> KeyPath:
    return ("server", "tls", key)


def _problem(configuration: Configuration, key: str, error: UnusableFileError) -> Problem:
    shown = show(_written(configuration, key))
    return configuration.error(_path(key), f"{shown} {error.what}", error.fix)


def _authority(pem: bytes) -> str:
    certificates(pem)
    if b"PRIVATE KEY" in pem:
        what = "contains a private key, and machines would get it"
        raise UnusableFileError(what, "leave only certificates in it")
    try:
        return pem.decode()
    except UnicodeDecodeError:
        what = "contains text that is not UTF-8"
        raise UnusableFileError(what, "leave only certificates in it") from None


def _pair(configuration: Configuration, certificate: Path, key: Path) -> None:
    """Load both with OpenSSL, as the listener does. Raises UnusableFileError."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    named = show(_written(configuration, "certificate_file"))
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason in _MISMATCH:
            fix = "name the key of that certificate, or put the server's certificate first"
            what = f"does not match the first certificate in {named}"
            raise UnusableFileError(what, fix) from None
        what = f"cannot be used with {named}: {error.reason}"
        raise UnusableFileError(what, "create a new certificate and key") from None


def _certificates(configuration: Configuration, key: str) -> list[x509.Certificate]:
    file = _file(configuration, key)
    try:
        return certificates(read_pem(file)) if file is not None else []
    except UnusableFileError:
        return []


def _validity(
    configuration: Configuration, key: str, one: x509.Certificate, now: datetime
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
    shown = show(_written(configuration, key))
    yield configuration.warning(_path(key), f"{shown} {what}", fix)


def _own_authority(
    configuration: Configuration, certificate: x509.Certificate
) -> Iterator[Problem]:
    """Warn of a certificate that signed itself: without `ca_file`, machines trust the CAs of their image."""
    try:
        certificate.verify_directly_issued_by(certificate)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return
    shown = show(_written(configuration, "certificate_file"))
    what = f"{shown} is signed by itself, and machines refuse it unless their image trusts it"
    fix = (
        "name it as ca_file, too: machines then trust it. GitHub does not: its webhooks need a "
        "proxy with a public certificate in front of webhook_listen"
    )
    yield configuration.warning(_path("certificate_file"), what, fix)


def _trust(configuration: Configuration) -> Iterator[Problem]:
    refusal = _refusal(configuration, "ca_file")
    if refusal is not None:
        keys = ("certificate_file", "ca_file")
        server, ca_file = (show(_written(configuration, key)) for key in keys)
        reason = refusal.verify_message
        what = f"{server} is not signed by a CA in {ca_file}, and machines refuse it: {reason}"
        fix = f"name the CA that signed it, or append the intermediate certificates to {server}"
        yield configuration.warning(_path("ca_file"), what, fix)


def _refusal(
    configuration: Configuration, trusted: str, host: str | None = None
) -> ssl.SSLCertVerificationError | None:
    """Return why a machine that trusts the certificates of a file refuses the server's, or None.

    With `host`, a machine that calls this host, and trusts each certificate of the file without its CA. Times
    do not count. Shakes hands in memory, with the TLS library of the agent, as the agent does. Newer releases
    of Python are stricter than this. None, too, if a file cannot be used.
    """
    files = (_file(configuration, key) for key in ("certificate_file", "key_file", trusted))
    certificate, key, ca = files
    if certificate is None or key is None or ca is None:
        return None
    try:
        private_key(read_pem(key))  # OpenSSL would ask for the password of an encrypted one
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(certificate, key)
        client = ssl.create_default_context(cafile=ca)
        client.check_hostname, client.hostname_checks_common_name = host is not None, False
        chain = ssl.VERIFY_X509_TRUSTED_FIRST if host is None else ssl.VERIFY_X509_PARTIAL_CHAIN
        client.verify_flags = ssl.VerifyFlags(_NO_CHECK_TIME | chain)
        to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        caller = client.wrap_bio(to_client, to_server, server_hostname=host)
        listener = server.wrap_bio(to_server, to_client, server_side=True)
        for end in (caller, listener, caller):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        return error
    except (UnusableFileError, ssl.SSLError, ValueError):
        return None  # such as a part of a host name with more than 63 characters
    return None


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _name(configuration: Configuration, certificate: x509.Certificate) -> Iterator[Problem]:
    host = urlsplit(configuration.settings.server.public_url).hostname
    refusal = _refusal(configuration, "certificate_file", host)
    if refusal is None or refusal.verify_code not in _OTHER_NAME:
        return
    file = show(_written(configuration, "certificate_file"))
    what = (
        f"{show(host)} is not among the names of the certificate in {file}: {_names(certificate)}"
    )
    fix = "write one of its names, or create a certificate with this subjectAltName"
    yield configuration.warning(("server", "public_url"), what, fix)


def _names(certificate: x509.Certificate) -> str:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return "it has no subjectAltName"
    names = [*found.get_values_for_type(x509.DNSName)]
    names += map(str, found.get_values_for_type(x509.IPAddress))
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return printable(", ".join(names[:_SHOWN_NAMES]) + more)
