"""Says why a job has no machine: asks the running controller, or else GitHub and fleet.yaml."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from autoscaler.app.translation import github_settings
from autoscaler.config import Configuration, ConfigurationError
from autoscaler.config.examinations import Check, fine, skipped, unknown, wrong
from autoscaler.controller.ports.github import GitHubError
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.system import SystemClock
from autoscaler.doctor.github import catalogue_of
from autoscaler.github.client import GitHubClient
from autoscaler.model.catalogue import Catalogue
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import JobId, Seconds
from autoscaler.model.jobs.access_rules import rule_against
from autoscaler.model.jobs.demand import classify, scope_of
from autoscaler.model.jobs.job import JobState, RunOrigin
from autoscaler.model.reasons.unmatched import are_hosted
from autoscaler.operator_commands.client import OperatorClient, OperatorRequestFailedError
from autoscaler.operator_commands.endpoint import UnusableUrlError, configured_endpoint
from autoscaler.operator_commands.options import JobPage
from autoscaler.views.jobs.explanation import unmatched

REQUEST_WITHIN: Seconds = 5.0
"""How long one request about a job may take: a read is sent up to three times."""


class ControllerNotAskedError(Exception):
    """The controller gave no explanation; the text says why."""


def ask_controller(file: Path, job: str) -> dict[str, Any]:
    """Return the controller's answer as for `autoscaler explain`. Raises ControllerNotAskedError."""
    try:
        return OperatorClient(configured_endpoint(file)).ask("/admin/explain", job=job)
    except ConfigurationError as error:
        raise ControllerNotAskedError(str(error.problems[0])) from None
    except (OperatorRequestFailedError, UnusableUrlError) as error:
        raise ControllerNotAskedError(str(error)) from None


async def ask_github(configuration: Configuration, page: JobPage) -> Check:
    """Return what GitHub and fleet.yaml say about a job. Raises ConfigurationError for an unusable key."""
    settings = replace(github_settings(configuration), timeout=REQUEST_WITHIN)
    client = GitHubClient(settings, SystemClock(), Telemetry())
    try:
        job = await client.read_job(page.repository, JobId(int(page.job)), time.time())
        origin = None
        if job is not None and job.run_id is not None:
            origin = await client.run_origin(page.repository, job.run_id)
    except GitHubError as error:
        return unknown(f"job {page.job}", f"GitHub does not show it: {error}", "autoscaler doctor")
    finally:
        await client.close()
    return judge_job(catalogue_of(configuration), page, job, origin)


def judge_job(
    catalogue: Catalogue, page: JobPage, job: JobObserved | None, origin: RunOrigin | None
) -> Check:
    """Judge why a job has no machine, without the controller. Pure."""
    name = f"job {page.job} of {page.repository}"
    if job is None:
        fix = "autoscaler doctor, for the installation; or correct the address"
        return wrong(
            name, "GitHub shows no such job to the App", "its webhooks do not come either", fix
        )
    runner = f" on {job.runner_name}" if job.runner_name else ""
    if job.state is JobState.COMPLETED:
        return fine(name, f"it is over ({job.conclusion or 'no conclusion'}){runner}")
    if job.state is JobState.IN_PROGRESS:
        return fine(name, f"it runs{runner}")
    if job.state is JobState.WAITING:
        return skipped(
            name, "GitHub holds it back: an environment's protection or a concurrency group"
        )
    return _judge_queued(name, catalogue, page.repository, job, origin)


def _judge_queued(
    name: str, catalogue: Catalogue, repository: str, job: JobObserved, origin: RunOrigin | None
) -> Check:
    labels = tuple(job.labels or ())
    demand = classify(catalogue, repository, labels)
    if demand is None:
        if scope_of(catalogue, repository) is not None and are_hosted(labels):
            return fine(name, unmatched(catalogue, repository, labels))
        why = f"no machine is launched for the labels {', '.join(labels)}"
        return wrong(
            name, unmatched(catalogue, repository, labels), why, _fix(catalogue, repository)
        )
    refused = {
        sku: rule
        for sku in demand.skus
        if origin is not None and (rule := rule_against(catalogue.skus[sku].access, origin))
    }
    if len(refused) == len(demand.skus):
        said = ", ".join(f"access.{rule} of {sku}" for sku, rule in refused.items())
        why = "no machine is launched for its run"
        return wrong(
            name, f"{said} refuses it", why, f"change {said} in fleet.yaml, or let it wait"
        )
    served = ", ".join(demand.skus)
    return wrong(
        name,
        f"fleet.yaml serves it by {served}, and the controller does not answer",
        "only a running controller launches machines",
        f"autoscaler doctor; then: autoscaler explain {job.id}",
    )


def _fix(catalogue: Catalogue, repository: str) -> str:
    if scope_of(catalogue, repository) is None:
        return f"add {repository} or its organization to github.scopes"
    return "correct runs-on in the workflow, or labels or access of a SKU; then: autoscaler check"
