"""Reads a file of operators' tokens: one per line, as `NAME ROLE TOKEN`.

Without its role, a line would be the rest of a damaged one, and no file may allow more by its damage.

The tokens are in plain text, as all secret files are: who can read the file can read the App's private key
beside it, which allows more, and the commands on the controller's host send a token from it.
"""

import re
from dataclasses import dataclass

from pydantic import SecretBytes

from autoscaler.config.files.regular_files import UnusableFileError
from autoscaler.model.operators import Operator, OperatorName, Role

SHORTEST_TOKEN = 32
"""Characters of a token: 128 bits in hexadecimal digits."""

MAX_OPERATOR_TOKENS = 100
"""A request with a token is compared with each of them."""

TOKENS_FIX = (
    "write one line per token: NAME read TOKEN, or NAME operate TOKEN, with a token such as the output of "
    "openssl rand -hex 32"
)

LONGEST_NAME = SHORTEST_TOKEN - 1
"""Characters of a name: a line that was cut off after its name contains no token."""

_NAME = re.compile(rb"[A-Za-z0-9][A-Za-z0-9_.@-]{0,%d}" % (LONGEST_NAME - 1))
_TOKEN = re.compile(rb"[!-~]{%d,1024}" % SHORTEST_TOKEN)
_WORDS = 3


@dataclass(frozen=True, slots=True)
class OperatorToken:
    """One line of the file: who its owner is, and the token."""

    operator: Operator
    token: SecretBytes


def is_token(text: bytes) -> bool:
    """Return True for visible ASCII characters for a header (RFC 6750) that are too many to guess."""
    return _TOKEN.fullmatch(text) is not None


def parse_operator_tokens(content: bytes) -> tuple[OperatorToken, ...]:
    """Return the tokens, at least one, in the order of the lines. Blank lines count for nothing.

    Raises: UnusableFileError.
    """
    found: list[OperatorToken] = []
    for number, line in enumerate(content.splitlines(), 1):
        if line.strip():
            found.append(_parse_line(number, line.split()))
    if not found:
        raise UnusableFileError("contains no secret")
    if len(found) > MAX_OPERATOR_TOKENS:
        raise UnusableFileError(f"contains more than {MAX_OPERATOR_TOKENS} tokens")
    if len({one.token.get_secret_value() for one in found}) < len(found):
        raise UnusableFileError("contains a token twice")
    return tuple(found)


def _parse_line(number: int, words: list[bytes]) -> OperatorToken:
    if len(words) != _WORDS:
        what = f"has not the three words NAME ROLE TOKEN in line {number}"
        raise UnusableFileError(what)
    name, role, token = words
    if not is_token(token):
        what = f"has a token in line {number} without {SHORTEST_TOKEN} to 1024 visible ASCII characters"
        raise UnusableFileError(what)
    if _NAME.fullmatch(name) is None:
        what = f"has a name in line {number} that is not 1 to {LONGEST_NAME} letters, digits or any of _.@-"
        raise UnusableFileError(what)
    if role not in (b"read", b"operate"):
        raise UnusableFileError(f"has a role in line {number} that is neither read nor operate")
    operator = Operator(OperatorName(name.decode()), Role(role.decode()))
    return OperatorToken(operator, SecretBytes(token))
