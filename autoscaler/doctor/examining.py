"""Lists all examinations of a fleet."""

from collections.abc import Iterator

from autoscaler.config import Configuration
from autoscaler.config.examinations import Examination
from autoscaler.doctor import github, host
from autoscaler.model.identifiers import Seconds
from autoscaler.providers.registry import provider_kinds


def examinations(configuration: Configuration, within: Seconds) -> Iterator[Examination]:
    """Return every examination of a fleet. Its requests end early enough to be judged `within` seconds."""
    yield from github.examinations(configuration, within)
    for kind in provider_kinds():
        yield from kind.examinations(configuration, within)
    yield from host.examinations(configuration, within)
