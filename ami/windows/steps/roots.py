"""The root certificates of Windows Update. Windows' own programs fetch each one when they need it. Python sees
only those that are stored, and without them it trusts neither GitHub nor a controller.
"""

import ssl

from library import BUILD, StepError, need_programs, note, retry, run

FEWEST = 100
"""Windows Update has some 400. A new Windows stores about 20."""


def before() -> None:
    """Check that Windows' own program is there."""
    need_programs("certutil")


def apply() -> None:
    """Download all roots, and store them."""
    file = BUILD / "roots.sst"
    retry(5, "certutil", lambda: _download(str(file)))
    run("certutil", "-addstore", "-f", "Root", file)
    file.unlink()


def _download(file: str) -> None:
    run("certutil", "-f", "-generateSSTFromWU", file)


def after() -> None:
    """Check that Python sees them."""
    found = len(ssl.create_default_context().get_ca_certs())
    if found < FEWEST:
        raise StepError(f"Python sees {found} root certificates; expected: {FEWEST} at least")
    note("root_certificates", str(found))
