"""How a count and a sentence are written in a message for people."""


def counted(count: int, noun: str) -> str:
    """Return `1 machine`, `2 machines` or `0 retries`. The noun is in the singular."""
    if count == 1:
        return f"1 {noun}"
    ends_in_ies = noun.endswith("y") and noun[-2] not in "aeiou"
    return f"{count} {noun[:-1]}ies" if ends_in_ies else f"{count} {noun}s"


def sentence(text: str) -> str:
    """Return a text with one full stop. A provider's words may end with one, and ours do not."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
