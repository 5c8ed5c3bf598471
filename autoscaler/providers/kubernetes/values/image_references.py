"""The form of a container image's reference: `[REGISTRY/]NAME[:TAG][@DIGEST]`. Pure.

The API server accepts any text. Kubelet refuses other forms only when the pod is on its node, with
`InvalidImageName` (kubernetes, `pkg/util/parsers`). Sources: distribution/reference, `regexp.go`,
`normalize.go` and `reference.go` (names and tags); opencontainers/go-digest, `algorithm.go` (digests).
"""

import re

FIX = "write [REGISTRY/]NAME[:TAG][@DIGEST] without https://, and NAME in lower case: ghcr.io/acme/runner:1"
"""What to write instead."""

MAX_NAME = 255
"""Characters of a name without its registry, its tag and its digest (`RepositoryNameTotalLengthMax`)."""

_MAX_LENGTH = 1024
_WORD = "[a-z0-9]+"
_PART = f"{_WORD}((?:[._]|__|-+){_WORD})*"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY = rf"({_LABEL}(\.{_LABEL})*|\[[A-Fa-f0-9:]+\])(:[0-9]+)?"
_TAG = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = "(sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})"
_REFERENCE = re.compile(rf"(?P<name>({_REGISTRY}/)?{_PART}(/{_PART})*)(:{_TAG})?(@{_DIGEST})?")
_IMAGE_ID = re.compile("[a-f0-9]{64}")


def is_image_reference(text: object) -> bool:
    """Return whether kubelet and the container runtimes can parse this value as an image's reference."""
    if not isinstance(text, str) or len(text) > _MAX_LENGTH or _IMAGE_ID.fullmatch(text):
        return False
    found = _REFERENCE.fullmatch(text)
    return found is not None and len(_without_registry(found["name"])) <= MAX_NAME


def words_of_image(reference: str) -> str:
    """Return the name and the tag of an image's reference, without its registry and its digest."""
    return _without_registry(reference.partition("@")[0])


def registry_of(reference: str) -> str:
    """Return the registry of an image's reference, or nothing if it names none."""
    return reference.removesuffix(_without_registry(reference)).removesuffix("/")


def _without_registry(name: str) -> str:
    """Return the name. Its first part is a registry if it cannot be a part of a name, or is `localhost`."""
    first, _, rest = name.partition("/")
    registry = re.search("[A-Z.:]", first) is not None or first == "localhost"
    return rest if rest and registry else name
