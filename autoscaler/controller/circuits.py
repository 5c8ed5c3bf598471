"""Logs why runners left without a job.

It never opens a circuit breaker: the ledger does, from the same reports.
"""

from collections.abc import Sequence

import structlog

from autoscaler.controller.journal import Journal
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import MachineId
from autoscaler.model.machines import ExitReason, Machine, MachineState

_EXPECTED = frozenset({ExitReason.UNUSED, ExitReason.SEAT_CLOSED})
"""A runner that no job came to is given back: nothing is wrong with its machine."""

_log = structlog.get_logger(__name__)


class Circuits:
    """Reads the history that is about to be stored."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        journal.on_history(self._hear)

    def _hear(self, rows: Sequence[HistoryRow]) -> None:
        for row in rows:
            if row.kind == "machine" and row.event == MachineState.EXITED:
                machine = self._journal.ledger.state.machines.get(MachineId(row.record))
                if machine is not None:
                    self._report_exit(machine, row.detail)

    def _report_exit(self, machine: Machine, detail: str) -> None:
        runners = self._journal.ledger.state.runners
        runner = runners.get(machine.runner) if machine.runner is not None else None
        if machine.exit_reason in _EXPECTED or (runner is not None and runner.job is not None):
            return
        _log.warning(
            "runner_exited_without_job",
            machine=machine.id,
            provider_id=machine.provider_id,
            sku=machine.sku,
            image=machine.image,
            runner=machine.runner,
            runner_version=machine.runner_version,
            reason=machine.exit_reason,
            detail=detail,
        )
