"""The REST routes to re-run jobs. Like GitHub, they refuse until the run is complete.

Shapes and statuses: GitHub's REST documentation, "Re-run a job from a workflow run" and "Re-run failed jobs
from a workflow run".
"""

from aiohttp import web

from lab.github.actions import Actions
from lab.github.credentials import Caller
from lab.github.directory import Directory
from lab.github.gateway import Gateway, NotFoundError, RefusedError, whole_number
from lab.github.records import Job, Run
from lab.github.workflows import Workflows

_RUNNING = "This workflow run is already running, or has not completed yet."


class RerunRoutes:
    """The handlers for callers with an installation token."""

    def __init__(
        self, gateway: Gateway, directory: Directory, workflows: Workflows, actions: Actions
    ) -> None:
        self._gateway = gateway
        self._directory = directory
        self._workflows = workflows
        self._actions = actions

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to re-run one job, or all failed jobs of a run."""
        add = self._gateway.for_installation
        actions = "/repos/{owner}/{repo}/actions"
        return [
            add("POST", f"{actions}/jobs/{{job_id}}/rerun", self._job),
            add("POST", f"{actions}/runs/{{run_id}}/rerun-failed-jobs", self._failed_jobs),
        ]

    async def _job(self, request: web.Request, caller: Caller) -> web.Response:
        job = self._workflows.jobs.get(whole_number(request.match_info["job_id"], 0))
        if job is None:
            raise NotFoundError
        return self._rerun(request, caller, job.run, job)

    async def _failed_jobs(self, request: web.Request, caller: Caller) -> web.Response:
        run = self._workflows.runs.get(whole_number(request.match_info["run_id"], 0))
        if run is None:
            raise NotFoundError
        return self._rerun(request, caller, run, None)

    def _rerun(
        self, request: web.Request, caller: Caller, run: Run, job: Job | None
    ) -> web.Response:
        owner, name = request.match_info["owner"], request.match_info["repo"]
        if self._directory.repository(owner, name) is not run.repository:
            raise NotFoundError
        if caller.installation is None or caller.installation.organization != owner:
            raise RefusedError(403, "Resource not accessible by integration")
        try:
            self._actions.rerun_failed(run, job)
        except ValueError as error:
            raise RefusedError(403, _RUNNING) from error
        return web.json_response({}, status=201)
