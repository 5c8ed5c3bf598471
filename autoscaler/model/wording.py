"""How a count is written in a message for people."""


def counted(count: int, noun: str) -> str:
    """Return `1 machine`, `2 machines` or `0 retries`. The noun is in the singular."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("y") else f"{count} {noun}s"
