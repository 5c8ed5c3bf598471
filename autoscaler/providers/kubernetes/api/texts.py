"""Bounds texts from the API server and kubelet. Pure."""

MAX_TEXT = 500
"""Characters kept of any message from outside."""

_BEGINNING = 120


def one_line(value: object) -> str:
    """Return a text on one line, cut after `MAX_TEXT` characters."""
    return " ".join(str(value or "").split())[:MAX_TEXT]


def without_middle(text: str, most: int) -> str:
    """Return a text of at most `most` characters that has the beginning and the end of a longer one.

    An error of a container runtime repeats the image's name several times, and has the cause at its end.
    """
    if len(text) <= most:
        return text
    return f"{text[:_BEGINNING]} ... {text[len(text) - (most - _BEGINNING - 5) :]}"
