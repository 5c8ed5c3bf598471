"""Decides whether the server's certificate, its key and the authority for machines can be used.

Reads the files that `server.tls` names, and shows nothing of what is in them. Whether a
certificate is in date or fits the host in `public_url` is for those who connect to say.
"""

import ssl
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from autoscaler.config.load import Configuration
from autoscaler.config.problems import Problem, show
from autoscaler.config.settings import Tls

# OpenSSL's words for a key that is another one's, of the same kind and of another.
_MISMATCH = {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED"}


def tls_problems(configuration: Configuration) -> Iterator[Problem]:
    """What makes the files of `server.tls` unusable; nothing where there is no `tls`."""
    tls = configuration.settings.server.tls
    if tls is None:
        return
    troubles = {
        "certificate_file": _certificates_trouble(configuration.file(tls.certificate_file)),
        "key_file": _key_trouble(configuration.file(tls.key_file)),
    }
    if tls.ca_file is not None:
        troubles["ca_file"] = _authority_trouble(configuration.file(tls.ca_file))
    if not troubles["certificate_file"] and not troubles["key_file"]:
        troubles["key_file"] = _pair_trouble(configuration, tls)
    for key, trouble in troubles.items():
        if trouble is not None:
            what, fix = trouble
            path = ("server", "tls", key)
            name = getattr(tls, key)
            yield configuration.document.problem(path, f"{show(name)} {what}", fix)


def _certificates_trouble(file: Path) -> tuple[str, str] | None:
    fix = "name a PEM file: -----BEGIN CERTIFICATE----- and so on"
    try:
        x509.load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        return f"cannot be read: {error.strerror}", "name a file to read"
    except ValueError:
        return "holds no certificate that can be read", fix
    return None


def _authority_trouble(file: Path) -> tuple[str, str] | None:
    trouble = _certificates_trouble(file)
    if trouble is None and b"PRIVATE KEY" in file.read_bytes():
        return "holds a private key, and would go to machines", "leave only certificates in it"
    return trouble


def _key_trouble(file: Path) -> tuple[str, str] | None:
    try:
        load_pem_private_key(file.read_bytes(), password=None)
    except OSError as error:
        return f"cannot be read: {error.strerror}", "name a file to read"
    except TypeError:
        return "holds an encrypted key", "write it without a password: openssl pkey -in FILE"
    except (ValueError, UnsupportedAlgorithm):
        return "holds no private key that can be read", "write the certificate's key as PEM"
    return None


def _pair_trouble(configuration: Configuration, tls: Tls) -> tuple[str, str] | None:
    """Whether OpenSSL takes them together, as the listener will ask it to."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate, key = (configuration.file(n) for n in (tls.certificate_file, tls.key_file))
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        if error.reason in _MISMATCH:
            what = f"is not the key of the first certificate in {show(tls.certificate_file)}"
            return what, "name the key that it was made with, or put the server's own first"
        what = f"cannot be used with {show(tls.certificate_file)}: {error.reason}"
        return what, "make a new certificate and key"
    return None
