"""What operators type or paste: names of records, pages at GitHub, and labels as `runs-on` has them."""

import re
from collections.abc import Sequence

import typer

MAX_NAME = 128
"""Maximum number of characters in a name that the controller accepts."""

_MAX_DIGITS = 18
"""Maximum number of digits in the number of a job that the controller accepts."""

_JOB_PAGE = re.compile(
    r"https?://[^/]+/[^/]+/[^/]+/actions/runs/\d+(?:/attempts/\d+)?/job/(\d+)(?:[?#].*)?"
)
"""The address of a job's page at GitHub (`html_url` of a workflow job)."""


def usable_name(text: str) -> str:
    """Return the name of a record. Raises BadParameter if none can have it."""
    if not text.strip():
        raise typer.BadParameter("it is empty")
    if len(text) > MAX_NAME:
        raise typer.BadParameter(f"it is longer than {MAX_NAME} characters")
    return text


def machine_state(text: str | None) -> str | None:
    """Return the state of a machine, None if none is given. Raises BadParameter if no machine has it."""
    from autoscaler.model.machines.machine import MachineState  # `--help` does not need it

    if text is not None and text not in set(MachineState):
        raise typer.BadParameter(
            f"{text!r} is not one of {', '.join(map(repr, map(str, MachineState)))}."
        )
    return text


def job_number(text: str) -> str | None:
    """Return the number of a job that is given by its number or its page. None for other text.

    Raises BadParameter for another page than that of a job, and for more digits than a job's number has.
    """
    if text.isascii() and text.isdigit():
        return _checked_digits(text)
    if not text.startswith(("https://", "http://")):
        return None
    if (page := _JOB_PAGE.fullmatch(text)) is None:
        raise typer.BadParameter(
            f"{text} is not the page of a job. Open the job in its run: its page is "
            "https://github.com/OWNER/REPOSITORY/actions/runs/RUN/job/JOB"
        )
    return _checked_digits(page.group(1))


def _checked_digits(digits: str) -> str:
    if len(digits) > _MAX_DIGITS:
        raise typer.BadParameter(
            f"{digits} is not the number of a job: it has more than {_MAX_DIGITS} digits"
        )
    return digits


def labels_of(words: Sequence[str]) -> list[str]:
    """Return the labels in these words, which may be a list of YAML such as `[self-hosted, gpu]`.

    Raises BadParameter for an empty label, and for a list that lacks a bracket. A comma separates labels, as in
    `config.sh --labels` of the runner.
    """
    text = ",".join(word.strip().removesuffix(",") for word in words)
    begins, ends = text.startswith("["), text.endswith("]")
    if begins != ends:
        raise typer.BadParameter(
            f"the list of labels has no {'closing' if begins else 'opening'} bracket: "
            "write '[self-hosted, gpu]', or the labels alone"
        )
    if begins:
        text = text[1:-1]
    labels = [label.strip().strip("\"'") for label in text.split(",")]
    if not all(labels):
        raise typer.BadParameter("a label is empty")
    return labels
