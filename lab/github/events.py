"""Builds webhook events: workflow_job for every change of a job, ping when a webhook is set.

Field names are those of GitHub's webhook schemas. The part that all events of a repository share is
built once.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lab.github.credentials import Installation
from lab.github.job_shapes import job_shape
from lab.github.oddities import Oddities
from lab.github.records import Job, Organization
from lab.github.settings import EVENTS
from lab.github.shapes import Shapes, node_id, timestamp
from lab.github.webhooks import Webhook


def compact(value: object) -> bytes:
    """Return JSON without spaces."""
    return json.dumps(value, separators=(",", ":")).encode()


class Events:
    """Sends events to every App's webhook. `installations` are by (App ID, organization's login)."""

    def __init__(
        self,
        shapes: Shapes,
        webhooks: Mapping[int, Webhook],
        installations: Mapping[tuple[int, str], Installation],
        organizations: Mapping[str, Organization],
    ) -> None:
        self._shapes = shapes
        self._webhooks = webhooks
        self._installations = installations
        self._organizations = organizations
        self._common: dict[tuple[int, int], bytes] = {}
        self._oddities = Oddities()

    def job(self, job: Job, action: str) -> None:
        """Send a `workflow_job` event for a change of a job."""
        active = [webhook for webhook in self._webhooks.values() if webhook.url is not None]
        if not active:
            return
        shape = job_shape(self._shapes, job)
        for said, shown in self._oddities.notices(job, action, shape):
            self._send(active, job, said, compact(shown))

    def _send(self, webhooks: Sequence[Webhook], job: Job, action: str, what: bytes) -> None:
        head = b'{"action":"%b","workflow_job":' % action.encode()
        repository = job.run.repository
        for webhook in webhooks:
            installation = self._installations.get((webhook.app_id, repository.owner))
            if installation is None:
                continue
            parts = (head, what, self._tail(installation, job))
            webhook.deliver("workflow_job", action, parts, (installation.id, repository.id))

    def ping(self, webhook: Webhook, now: float) -> None:
        """Send a `ping` event, because the webhook's URL was set."""
        hook: dict[str, Any] = {
            "type": "App",
            "id": webhook.hook_id,
            "name": "web",
            "active": True,
            "events": list(EVENTS),
            "config": {
                "content_type": "json",
                "insecure_ssl": "0",
                "secret": "********",
                "url": webhook.url,
            },
            "updated_at": timestamp(now),
            "created_at": timestamp(now),
            "app_id": webhook.app_id,
            "deliveries_url": f"{self._shapes.api}/app/hook/deliveries",
        }
        body = {"zen": "Keep it logically awesome.", "hook_id": webhook.hook_id, "hook": hook}
        webhook.deliver("ping", None, (compact(body),), None)

    def _tail(self, installation: Installation, job: Job) -> bytes:
        """Return the last part of the body: repository, organization, sender and installation."""
        repository = job.run.repository
        key = (installation.id, repository.id)
        tail = self._common.get(key)
        if tail is None:
            organization = self._organizations[repository.owner.lower()]
            common = {
                "repository": self._shapes.repository(repository),
                "organization": self._shapes.organization(organization),
                "sender": self._shapes.sender(),
                "installation": {
                    "id": installation.id,
                    "node_id": node_id("IN", installation.id),
                },
            }
            tail = self._common[key] = b"," + compact(common)[1:]
        return tail
