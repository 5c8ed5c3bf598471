"""GitHub's JSON for jobs and workflow runs, as REST answers and webhooks carry them.

Field names and types are those of GitHub's OpenAPI description and webhook schemas. A run's state
follows from its jobs. GitHub does not show jobs whose needs have not succeeded.
"""

from typing import Any

from lab.github.records import Job, JobStatus, Run
from lab.github.shapes import Shapes, digest, node_id, timestamp
from lab.github.workflows import WORKFLOW_PATH


def head_sha(run: Run) -> str:
    """Return the SHA of a run's commit."""
    return digest(f"{run.repository.full_name} {run.id}")


def visible(run: Run, *, every_attempt: bool = False) -> list[Job]:
    """Return a run's jobs that GitHub shows: the last attempt of each, or all attempts."""
    jobs = [*(run.earlier if every_attempt else ()), *run.jobs.values()]
    return [job for job in jobs if job.status is not JobStatus.BLOCKED]


def run_status(run: Run) -> tuple[str, str | None]:
    """Return a run's status and conclusion."""
    seen = {job.status for job in run.jobs.values()}
    if seen == {JobStatus.COMPLETED}:
        worst = {job.conclusion for job in run.jobs.values()}
        for conclusion in ("failure", "cancelled"):
            if conclusion in worst:
                return "completed", conclusion
        return "completed", "success"
    if seen & {JobStatus.IN_PROGRESS, JobStatus.COMPLETED}:
        return "in_progress", None
    return ("queued" if JobStatus.QUEUED in seen else "waiting"), None


def _steps(job: Job) -> list[dict[str, Any]]:
    if job.started_at is None:
        return []
    ended = job.completed_at is not None
    conclusion = job.conclusion if job.conclusion in {"success", "cancelled"} else "failure"
    return [
        {
            "name": "Set up job",
            "status": "completed" if ended else "in_progress",
            "conclusion": conclusion if ended else None,
            "number": 1,
            "started_at": timestamp(job.started_at),
            "completed_at": timestamp(job.completed_at) if job.completed_at is not None else None,
        }
    ]


def job_shape(shapes: Shapes, job: Job) -> dict[str, Any]:
    """Return a job's JSON. `started_at` is always set, as at GitHub; a started job has runner fields."""
    run = job.run
    url = f"{shapes.api}/repos/{run.repository.full_name}"
    ran_on = job.runner if job.started_at is not None else None
    queued_at = job.queued_at if job.queued_at is not None else job.created_at
    started_at = job.started_at if job.started_at is not None else queued_at
    return {
        "id": job.id,
        "run_id": run.id,
        "workflow_name": run.workflow,
        "head_branch": run.branch,
        "run_url": f"{url}/actions/runs/{run.id}",
        "run_attempt": job.attempt,
        "node_id": node_id("CR", job.id),
        "head_sha": head_sha(run),
        "url": f"{url}/actions/jobs/{job.id}",
        "html_url": f"{shapes.pages}/{run.repository.full_name}/actions/runs/{run.id}/job/{job.id}",
        "status": job.status.value,
        "conclusion": job.conclusion,
        "created_at": timestamp(queued_at),
        "started_at": timestamp(started_at),
        "completed_at": timestamp(job.completed_at) if job.completed_at is not None else None,
        "name": job.spec.name,
        "steps": _steps(job),
        "check_run_url": f"{url}/check-runs/{job.id}",
        "labels": list(job.spec.labels),
        "runner_id": ran_on.id if ran_on else None,
        "runner_name": ran_on.name if ran_on else None,
        "runner_group_id": ran_on.group.id if ran_on else None,
        "runner_group_name": ran_on.group.name if ran_on else None,
    }


def run_shape(shapes: Shapes, run: Run) -> dict[str, Any]:
    """Return a workflow run's JSON."""
    status, conclusion = run_status(run)
    repository = shapes.repository(run.repository)
    created = timestamp(run.created_at)
    return {
        "id": run.id,
        "name": run.workflow,
        "node_id": node_id("WFR", run.id),
        "head_branch": run.branch,
        "head_sha": head_sha(run),
        "path": WORKFLOW_PATH,
        "display_title": run.workflow,
        "run_number": run.number,
        "event": run.event,
        "status": status,
        "conclusion": conclusion,
        "workflow_id": _workflow_id(run),
        "check_suite_id": run.id,
        "check_suite_node_id": node_id("CS", run.id),
        "html_url": f"{shapes.pages}/{run.repository.full_name}/actions/runs/{run.id}",
        "pull_requests": [],
        "created_at": created,
        "updated_at": created,
        "actor": shapes.sender(),
        "triggering_actor": shapes.sender(),
        "run_attempt": run.attempt,
        "referenced_workflows": [],
        "run_started_at": created,
        "previous_attempt_url": None,
        **_run_links(repository["url"], run),
        "head_commit": _commit(run),
        "repository": repository,
        "head_repository": shapes.repository(run.head),
    }


def _workflow_id(run: Run) -> int:
    return run.repository.id + 1


def _run_links(repository_url: str, run: Run) -> dict[str, str]:
    url = f"{repository_url}/actions/runs/{run.id}"
    return {
        "url": url,
        "jobs_url": f"{url}/jobs",
        "logs_url": f"{url}/logs",
        "check_suite_url": f"{repository_url}/check-suites/{run.id}",
        "artifacts_url": f"{url}/artifacts",
        "cancel_url": f"{url}/cancel",
        "rerun_url": f"{url}/rerun",
        "workflow_url": f"{repository_url}/actions/workflows/{_workflow_id(run)}",
    }


def _commit(run: Run) -> dict[str, Any]:
    person = {"name": "Lab Pusher", "email": "lab-pusher@example.com"}
    sha = head_sha(run)
    return {
        "id": sha,
        "tree_id": digest(sha),
        "message": f"Run {run.number}",
        "timestamp": timestamp(run.created_at),
        "author": person,
        "committer": person,
    }
