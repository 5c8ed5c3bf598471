"""Compresses a page for a client that accepts gzip (RFC 9110, section 12.5.3).

An attacker who chooses a part of a page and sees its length can guess a secret in this page (BREACH). No page
has one: the cookie is in a header, the forms have no token of a session, and a token that was sent is not
shown again. Nor can another site have a signed-in browser load a page with text of its choice, because the
browser does not send a `SameSite=Strict` cookie then.
"""

import gzip

MIN_BYTES = 1024
"""A shorter page fits into one packet either way."""

_LEVEL = 4
"""A page of 100 KB takes 1 ms and becomes 10 KB. A higher level takes twice as long for a tenth less."""


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether a client with this Accept-Encoding takes gzip. Without the header, it may not."""
    weights: dict[str, bool] = {}
    for part in accept_encoding.lower().split(","):
        coding, _, parameters = part.partition(";")
        weights[coding.strip()] = not _is_zero(parameters)
    return weights.get("gzip", weights.get("*", False))


def compressed(page: str) -> bytes:
    """Return the page as gzip. The same page gives the same bytes. Takes CPU time: not for the event loop."""
    return gzip.compress(page.encode(), _LEVEL, mtime=0)


def _is_zero(parameters: str) -> bool:
    """Return whether these parameters of a coding refuse it: `q=0`, `q=0.000`."""
    name, _, value = parameters.replace(" ", "").partition("=")
    return name == "q" and value.rstrip("0") in ("", "0.", ".")
