"""The server's TLS certificate. Reads the files again when they change.

If the new files cannot be used, logs an error and keeps the earlier certificate in use.
"""

import ssl

import structlog

from autoscaler.config.files.regular_files import open_regular
from autoscaler.server.file_stamp import FileStamp, file_stamp
from autoscaler.server.listening.settings import TlsFiles

_log = structlog.get_logger(__name__)


class CertificateError(Exception):
    """A certificate cannot be used. The message names its files."""


class Certificate:
    """The certificate in `files`."""

    def __init__(self, files: TlsFiles) -> None:
        """Read the files.

        Raises: CertificateError.
        """
        self._files = files
        self._stamp = _stamp(files)
        self._context = _read(files)

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection. Reads the files again if they changed.

        Two stat(2) calls per connection replace a timer: the first connection gets a renewed certificate.
        """
        stamp = _stamp(self._files)
        if stamp != self._stamp:
            # Set before the files are read, so that one bad version is logged once.
            self._stamp = stamp
            try:
                self._context = _read(self._files)
            except CertificateError as error:
                _log.error("certificate_not_reloaded", error=str(error))
            else:
                _log.info("certificate_reloaded", certificate=str(self._files.certificate))
        return self._context


def _stamp(files: TlsFiles) -> tuple[FileStamp, FileStamp]:
    return file_stamp(files.certificate), file_stamp(files.key)


def _read(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and later, Python's default ciphers, and no client certificates."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        for file in (files.certificate, files.key):
            open_regular(file).close()  # OpenSSL would wait for a FIFO
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise CertificateError(
            f"cannot use certificate {files.certificate} with key {files.key}: {error}"
        ) from error
    return context


def _no_password() -> str:
    """Refuse an encrypted key, for whose password OpenSSL would ask on the terminal."""
    raise ValueError("the key is encrypted")
