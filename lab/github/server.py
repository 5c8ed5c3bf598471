"""The lab's GitHub: connects its parts, and lets tests push jobs and read their results."""

import asyncio
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence

from aiohttp import web
from aiohttp.typedefs import Middleware

from autoscaler.controller.ports.clock import Clock
from lab.github.actions import Actions
from lab.github.administration import Administration
from lab.github.app_routes import AppRoutes, DeliveryRoutes
from lab.github.credentials import Credentials
from lab.github.deliveries import Delivery
from lab.github.deprecation_routes import DeprecationRoutes
from lab.github.directory import Directory
from lab.github.events import Events
from lab.github.faults import AnswerFaults
from lab.github.gateway import Gateway
from lab.github.job_routes import JobRoutes, SelfRoutes
from lab.github.limits import RateLimits
from lab.github.matching import Matching
from lab.github.protocol_routes import ProtocolRoutes
from lab.github.records import Job, Run
from lab.github.registration import Registration
from lab.github.rerun_routes import RerunRoutes
from lab.github.runner_routes import RunnerRoutes
from lab.github.runners import RegisteredRunnerView
from lab.github.settings import (
    AnswerFault,
    DeliveryFaults,
    JobSpec,
    LabApp,
    LabGitHubOptions,
    LabOrganization,
)
from lab.github.shapes import RUNNER_VERSION, Shapes
from lab.github.timers import Timers
from lab.github.webhooks import Webhook
from lab.github.workflows import Workflows

_BACKLOG = 4096
_SHUTDOWN = 1.0
_FIRST_HOOK = 400_000_001


def _listener(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


class LabGitHub:
    """A GitHub for the given Apps and organizations, on loopback.

    `clock` gives lab time (`options.scale` lab seconds per real second). `wall` gives the Unix time by which
    JWTs and tokens are checked: the time with which the client's App signs. `middlewares` see every request
    first.
    """

    def __init__(
        self,
        apps: Sequence[LabApp],
        organizations: Sequence[LabOrganization],
        clock: Clock,
        options: LabGitHubOptions | None = None,
        wall: Callable[[], float] = time.time,
        middlewares: Sequence[Middleware] = (),
    ) -> None:
        self._options = options if options is not None else LabGitHubOptions()
        self._clock = clock
        self._timers = Timers(clock)
        known: dict[str, float | None] = {} if self._options.base_path else {RUNNER_VERSION: None}
        self._version_ends = known
        self._directory = Directory(apps, organizations)
        self._credentials = Credentials(apps, wall, self._options.token_lifetime)
        self._webhooks = {
            app.id: Webhook(app, _FIRST_HOOK + index, clock, self._timers, self._options)
            for index, app in enumerate(apps)
        }
        self._workflows = Workflows(self._directory.organizations, self._options.ids_after)
        chooser = random.Random(self._options.seed)  # noqa: S311 - which runner, not a secret
        self._actions = Actions(
            clock,
            self._timers,
            Matching(chooser.randrange if self._options.pick == "arbitrary" else None),
            self._workflows,
            self._options.patience.at(self._options.scale),
            lambda job, action: self._events.job(job, action),
        )
        self._actions.lose = self._options.lose_jobs
        self._actions.runners.ids_after = self._options.ids_after
        self._events: Events
        self.registration: Registration
        self._protocol = ProtocolRoutes(
            self._actions, self._options.scale, self._options.oldest_runner
        )
        self._limits = RateLimits(self._options.limits)
        self._faults = AnswerFaults(
            self._options.answer_faults, self._options.seed, self._credentials
        )
        self._gateway = Gateway(self._credentials, self._limits, clock, self._faults, self._options)
        self.administration = Administration(
            self._directory, self._credentials, self._gateway, self._webhooks, clock
        )
        self._middlewares = middlewares
        self._server: web.AppRunner | None = None
        self._timing: asyncio.Task[None] | None = None
        self.api_url = ""

    async def start(self) -> None:
        """Listen, and send a ping to each webhook that is set."""
        application = web.Application(client_max_size=1 << 20, middlewares=self._middlewares)
        self._server = web.AppRunner(
            application, access_log=None, handler_cancellation=True, shutdown_timeout=_SHUTDOWN
        )
        listener = _listener(self._options.port)
        self._gateway.origin = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.api_url = self._gateway.origin + self._options.base_path
        application.add_routes(self._routes())
        await self._server.setup()
        await web.SockSite(self._server, listener, backlog=_BACKLOG).start()
        self._timing = asyncio.create_task(self._timers.run())
        for webhook in self._webhooks.values():
            webhook.start()
            self._events.ping(webhook, self._clock.now())

    async def close(self) -> None:
        """Stop listening and sending. Idempotent. Raises the error of a background task that failed."""
        self._actions.runners.close_polls()
        if self._server is not None:
            await self._server.cleanup()
            self._server = None
        for webhook in self._webhooks.values():
            await webhook.close()
        timing, self._timing = self._timing, None
        if timing is not None:
            timing.cancel()
            (end,) = await asyncio.gather(timing, return_exceptions=True)
            if isinstance(end, Exception):
                raise end

    # What people do at GitHub.

    def push(self, jobs: Sequence[JobSpec]) -> list[Job]:
        """Queue jobs and return their records, which follow the jobs' states.

        Raises ValueError for unknown repositories, and needs that do not exist or form a cycle; RuntimeError
        before `start`.
        """
        if self._timing is None:
            raise RuntimeError("this GitHub has not been started")
        return self._actions.push(jobs)

    def end_runner_version(self, version: str, at: float | None) -> None:
        """Say when a version of actions/runner, such as `2.338.0`, gets no more jobs, in lab time."""
        self._version_ends[version] = at

    def cancel(self, job: Job) -> None:
        """Cancel a job, queued or running."""
        self._actions.cancel(job)

    def end(self, job: Job) -> None:
        """End a job early, within 3 lab minutes."""
        self._actions.end(job)

    def rerun_failed(self, run: Run) -> list[Job]:
        """Re-run a run's failed jobs, under new IDs. Send `completed` again for the others, as GitHub does.

        Raises ValueError while the run has not ended.
        """
        return self._actions.rerun_failed(run)

    def lose(self, job: Job) -> bool:
        """Remove a job from the queue for good. Return False if a runner already has it."""
        return self._actions.lose_job(job)

    def lose_next(self, count: int) -> None:
        """Lose the next `count` jobs that are queued."""
        self._actions.lose = count

    def point_webhook(self, url: str | None, app_id: int | None = None) -> None:
        """Set the webhook URL of all Apps or one, and send a ping; None stops deliveries."""
        for webhook in self._webhooks.values():
            if app_id in {None, webhook.app_id}:
                webhook.url = url
                self._events.ping(webhook, self._clock.now())

    def disturb(self, faults: DeliveryFaults) -> None:
        """Set the shares of deliveries that are lost, repeated and delayed."""
        for webhook in self._webhooks.values():
            webhook.faults = faults

    def inject_faults(self, *faults: AnswerFault) -> None:
        """Replace the faults of REST answers by these."""
        self._faults.set(faults)

    async def settled(self) -> None:
        """Return once every pushed job has ended. Never returns if a job was lost."""
        await self._actions.settled.wait()

    async def delivered(self) -> None:
        """Return once every delivery that is due has been attempted."""
        for webhook in self._webhooks.values():
            await webhook.sent()

    # What there is to see.

    @property
    def jobs(self) -> list[Job]:
        """All jobs in the order of pushing, with their times, conclusions and starts."""
        return list(self._workflows.jobs.values())

    @property
    def unfinished(self) -> int:
        """The number of jobs that have not ended."""
        return self._actions.unfinished

    @property
    def calls(self) -> Counter[tuple[str, int]]:
        """The number of REST requests by (`METHOD /route/{template}`, status)."""
        return self._gateway.calls

    @property
    def spoiled(self) -> Counter[str]:
        """The number of REST answers that a fault changed, by kind."""
        return self._faults.met

    @property
    def anonymous_calls(self) -> int:
        """The number of requests without credentials that count against their IP address's limit."""
        return self._gateway.anonymous

    @property
    def protocol_calls(self) -> Counter[tuple[str, int]]:
        """The number of runners' requests by (step, status)."""
        return self._protocol.calls

    @property
    def registered_ever(self) -> int:
        """The number of runners that were ever registered."""
        return self._actions.runners.registered

    @property
    def names_registered(self) -> Counter[str]:
        """The number of registrations by name, including removed ones."""
        return self._actions.runners.names

    @property
    def runners(self) -> list[RegisteredRunnerView]:
        """The registrations that exist now."""
        return self._actions.runners.views()

    @property
    def deliveries(self) -> Counter[str]:
        """The number of deliveries of all Apps by outcome: ok, failed, redelivered, or the fault that hit."""
        total: Counter[str] = Counter()
        for webhook in self._webhooks.values():
            total += webhook.outcomes
        return total

    def delivery_log(self, app_id: int) -> list[Delivery]:
        """Return one App's deliveries, oldest first."""
        return list(self._webhooks[app_id].log.entries)

    def _add_webhook(self, app: LabApp) -> None:
        number = _FIRST_HOOK + len(self._webhooks)
        webhook = Webhook(app, number, self._clock, self._timers, self._options)
        self._webhooks[app.id] = webhook
        webhook.start()
        self._events.ping(webhook, self._clock.now())

    def _routes(self) -> list[web.RouteDef]:
        """Return every route. Needs the server's URL, which is part of answers."""
        shapes = Shapes(self.api_url, self._gateway.origin, self._clock.now())
        directory, gateway = self._directory, self._gateway
        clock, options = self._clock, self._options
        itself = SelfRoutes(gateway, self._clock)
        self.registration = Registration(
            gateway, directory, self._credentials, shapes, self._add_webhook
        )
        self._events = Events(
            shapes, self._webhooks, directory.installations, directory.organizations
        )
        return [
            *AppRoutes(gateway, directory, self._credentials, shapes).routes(),
            *DeliveryRoutes(gateway, self._webhooks, directory.apps, self._clock).routes(),
            *self.registration.routes(),
            *RunnerRoutes(gateway, directory, self._actions, shapes, clock, options).routes(),
            *JobRoutes(gateway, directory, self._workflows, shapes).routes(),
            *RerunRoutes(gateway, directory, self._workflows, self._actions).routes(),
            *DeprecationRoutes(gateway, directory, self._version_ends).routes(),
            *self._protocol.routes(),
            *itself.routes(),
            itself.catch_all(),
        ]
