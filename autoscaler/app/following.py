"""A replica that does not lead: it serves /webhook, and waits until it may lead."""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import structlog

from autoscaler import config
from autoscaler.app.endpoints import metrics_tokens, new_telemetry, webhook_endpoint
from autoscaler.app.event_loop import report_lag
from autoscaler.app.process import file_limit
from autoscaler.app.translation import server_settings
from autoscaler.controller.ports.replicas import Lease, Replica, SharedStore, StoreUnavailableError
from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.controller.replicas.following import LOG_AGAIN_AFTER, Follower, FollowerIntake
from autoscaler.controller.system import SystemClock, process_name
from autoscaler.github.webhook import parse_workflow_job
from autoscaler.model.identifiers import Instant, Seconds
from autoscaler.model.jobs.demand import first_scope
from autoscaler.server.health import HealthEndpoint
from autoscaler.server.listening.listener import KeptSockets
from autoscaler.server.listening.serving import Endpoint, Serving
from autoscaler.server.replicas.forwarding import ForwardEndpoint
from autoscaler.store.opening import open_shared_store

_OPEN_AGAIN_AFTER: Final[Seconds] = 1.0
_ANY_HOST: Final = ("", "0.0.0.0", "::")  # noqa: S104 - compared, and not listened on

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """What the command line says of this replica.

    `url`: where other replicas reach it; None: this host's name, and the port of `server.listen`.
    `intake_only`: never lead.
    """

    url: str | None = None
    intake_only: bool = False


class Following:
    """The parts of a replica that does not lead."""

    def __init__(
        self,
        configuration: config.Configuration,
        clock: SystemClock,
        kept: KeptSockets,
        options: ReplicaOptions,
        *,
        again: bool = False,
    ) -> None:
        """`kept` has the listening sockets, if this process led before. The next parts continue with them.

        `again`: this process has followed before, so it waits for a store that it cannot use now.
        """
        self._configuration = configuration
        self._options = options
        self._again = again
        self._pacing = SystemClock()
        self._intake: FollowerIntake | None = None
        self._follower: Follower | None = None
        settings = configuration.settings
        self._scopes = config.scopes(settings)
        self._telemetry = new_telemetry(configuration, clock)
        webhook = webhook_endpoint(configuration, self._accept, clock, self._telemetry)
        allowed = server_settings(configuration).within(file_limit(), forwards=True)
        self._forwarding = ForwardEndpoint(
            lambda: self._lease,
            leader_trust(configuration),
            urlsplit(str(settings.server.public_url)).hostname,
            allowed.max_connections,
        )
        others: list[Endpoint] = [
            HealthEndpoint(list, self._unready, self._metrics, metrics_tokens(configuration)),
            self._forwarding,
        ]
        self._serving = Serving(allowed, webhook, others, kept)

    async def until_leading(self) -> tuple[SharedStore, Lease]:
        """Serve until this replica leads. Return the open store and the lease.

        Raises: StoreError if the store cannot be used, ListenError.
        """
        lag = asyncio.ensure_future(report_lag(self._telemetry))
        try:
            return await self._serve_until_leading()
        finally:
            lag.cancel()

    async def _serve_until_leading(self) -> tuple[SharedStore, Lease]:
        async with AsyncExitStack() as stack:
            # The last requests need the store, so it is closed after the server.
            async with self._serving as serving:
                serving.keep_listening()
                store = await self._open()
                stack.push_async_callback(store.close)
                fleet = self._configuration.settings.fleet
                _log.info("following", fleet=fleet, on=str(serving.address))
                self._intake = FollowerIntake(
                    store,
                    parse_workflow_job,
                    lambda name: first_scope(self._scopes, name) is not None,
                )
                self._follower = Follower(store, self._replica(), self._pacing)
                lease = await self._follower.until_leading(intake_only=self._options.intake_only)
            stack.pop_all()
        return store, lease

    async def _open(self) -> SharedStore:
        """Open the store once its server answers.

        Raises: StoreError at the first start, for what waiting does not mend. Later the operator may mend it,
        such as a password that reached the server first, and the end of the process would delay a takeover.
        """
        log_from = self._pacing.now()
        while True:
            try:
                return await open_shared_store(self._configuration.store_url())
            except StoreError as error:
                if not self._again and not isinstance(error, StoreUnavailableError):
                    raise
                if self._pacing.now() >= log_from:
                    log_from = self._pacing.now() + LOG_AGAIN_AFTER
                    _log.error("store_not_reached", reason=str(error))
            await self._pacing.sleep(_OPEN_AGAIN_AFTER)

    def _accept(self, delivery: Delivery) -> "asyncio.Future[bool | None]":
        if self._intake is not None:
            stored = self._intake.accept(delivery)
            stored.add_done_callback(partial(self._measure, self._pacing.now()))
            return stored
        refused: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        refused.set_exception(StoreError("the store's server does not answer yet"))
        return refused

    def _measure(self, began: Instant, stored: "asyncio.Future[bool | None]") -> None:
        if not stored.cancelled() and stored.exception() is None and stored.result():
            self._telemetry.store_write("accept", self._pacing.now() - began)

    def _replica(self) -> Replica:
        name = process_name()
        fleet = self._configuration.settings.fleet
        if self._options.url is not None:
            return Replica(name, self._options.url, fleet)
        address = self._serving.address
        host = socket.gethostname() if address.host in _ANY_HOST else address.host
        shown = f"[{host}]" if ":" in host else host
        scheme = "http" if self._configuration.settings.server.tls is None else "https"
        return Replica(name, f"{scheme}://{shown}:{address.port}", fleet)

    @property
    def _lease(self) -> Lease | None:
        return None if self._follower is None else self._follower.lease

    def _unready(self) -> list[str]:
        if self._lease is None:
            return ["the store's server does not answer"]
        if self._forwarding.is_leader_silent():
            url = self._lease.holder.url
            return [f"the replica that leads does not answer at {url}, its --replica-url"]
        return []

    def _metrics(self) -> tuple[Iterable[bytes], str]:
        epoch = 0 if self._lease is None else self._lease.epoch
        self._telemetry.replica(leads=False, epoch=epoch)
        return self._telemetry.render(), self._telemetry.content_type


def leader_trust(configuration: config.Configuration) -> ssl.SSLContext | None:
    """Return what a replica checks the leader's certificate with, or None without TLS.

    All replicas have the same certificate, so each also trusts its own. Behind a load balancer that terminates
    TLS, `ca_file` is about the load balancer's certificate.
    """
    tls = configuration.settings.server.tls
    if tls is None:
        return None
    file = None if tls.ca_file is None else configuration.file(tls.ca_file)
    trust = ssl.create_default_context(cafile=file)
    # Also if a CA signed it (Python 3.13 sets this flag itself).
    trust.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    trust.load_verify_locations(cafile=configuration.file(tls.certificate_file))
    return trust
