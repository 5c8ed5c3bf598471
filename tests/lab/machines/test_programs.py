"""The lab's stand-ins for GitHub's programs."""

import subprocess
from pathlib import Path

WORKER = Path(__file__).parents[3] / "lab/machines/programs/Runner.Worker"


def test_a_worker_prints_its_process_id_before_its_step_starts() -> None:
    """In any other order, the listener takes the step for the worker's process, and the job fails."""
    with subprocess.Popen([WORKER, "0"], stdout=subprocess.PIPE, env={}, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.read().splitlines() == [str(worker.pid), "step"]
