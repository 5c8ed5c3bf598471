"""A changed configuration: its keys, the machines that it would lose, and the log lines about it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from autoscaler import config
from autoscaler.config.changed_keys import is_identity, moved_provider, shown
from autoscaler.config.problems import KeyPath
from autoscaler.model.identifiers import ProviderName
from autoscaler.model.operators import OperatorName
from autoscaler.model.wording import counted

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """The configuration with which the controller starts again, and who changed which keys (`paths`)."""

    configuration: config.Configuration
    by: OperatorName
    paths: tuple[KeyPath, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The changed keys, as messages name them."""
        return tuple(shown(self.paths))


def lost_machines(
    before: config.Settings,
    new: config.Configuration,
    paths: Iterable[KeyPath],
    machines_at: Callable[[ProviderName | None], int],
) -> list[str]:
    """Return a problem for each changed key with which the controller would not find machines that exist.

    `machines_at` returns how many machines a provider has, or all providers (None).
    """
    problems = []
    for path in paths:
        moved = moved_provider(path, before)
        if moved is None and not is_identity(path):
            continue
        if count := machines_at(moved):
            where = "the fleet" if moved is None else f"provider {moved}"
            what = f"cannot change while {where} has {counted(count, 'machine')}"
            fix = "drain it and reload when it has none, or undo the change"
            problems.append(new.document.problem(path, what, fix))
    return [str(one) for one in sorted(problems)]


def log_refusal(
    by: OperatorName, problems: Sequence[str], unexpected: Exception | None = None
) -> None:
    """Log why a changed file is not in use, with the traceback of an unexpected error."""
    _log.error("configuration_not_reloaded", by=by, problems=list(problems), exc_info=unexpected)


def log_warnings(configuration: config.Configuration) -> None:
    """Log what is not wrong in a configuration that is used now, but may not be meant."""
    for warning in configuration.warnings:
        _log.warning("configuration_warning", problem=str(warning))
    for line in config.not_in_force(configuration.settings):
        _log.warning("key_ignored", key=line)
