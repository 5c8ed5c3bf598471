"""The loopback server for AWS's API and the machines' metadata.

Passes each request to the front's own actions, to the simulated Service Quotas, Pricing and SQS, or to
moto. Counts every call, and breaks connections if a fault says so. It checks no credentials and refuses
other regions.
"""

import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from lab.ec2 import event_queue, price_list, service_quotas
from lab.ec2.actions import Actions
from lab.ec2.event_queue import EventQueue
from lab.ec2.faults import EXPIRED_TOKEN, Faults
from lab.ec2.moto import MotoAnswer, MotoClient
from lab.ec2.moto_queues import MotoQueues
from lab.ec2.price_list import PriceList
from lab.ec2.query import Ec2Error, nest, parse_query
from lab.ec2.service_quotas import ServiceQuotas
from lab.ec2.subnets import Subnets
from lab.ec2.throttling import Throttling

MAX_REQUEST = 4 * 1024 * 1024
CREDENTIAL_SCOPE = re.compile(r"Credential=[^/,]*/\d{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
PASSED_ON = ("Authorization", "Content-Type", "X-Amz-Target", "X-Amz-Date")


RequestRecorder = Callable[[str, str, Mapping[str, Any]], None]
"""Gets the service, the operation and the parameters of a request, before it is answered."""


@dataclass(frozen=True, slots=True)
class Answerers:
    """The services that answer, and the faults. `sleep` and `now` use lab time."""

    actions: Actions
    quotas: ServiceQuotas
    prices: PriceList
    events: EventQueue
    subnets: Subnets
    moto: MotoClient
    faults: Faults
    throttling: Throttling
    sleep: Callable[[float], Awaitable[None]]
    now: Callable[[], float]


class Front:
    """Serves one account in one region."""

    def __init__(self, answerers: Answerers, region: str) -> None:
        self._to = answerers
        self._region = region
        self._runner: web.AppRunner | None = None
        self.calls: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.sendings: defaultdict[str, list[str]] = defaultdict(list)
        self.first_sent: dict[str, float] = {}
        self.recorder: RequestRecorder | None = None
        self._queues = MotoQueues(answerers.moto)
        self.url = ""

    async def start(self, routes: Sequence[web.RouteDef], port: int = 0) -> None:
        """Listen on loopback, with these routes beside the API. Port 0 is any free one."""
        app = web.Application(client_max_size=MAX_REQUEST)
        app.add_routes([*routes, web.post("/{path:.*}", self._handle)])
        # Short, because long polls at the end of a lab get no message.
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        scope = CREDENTIAL_SCOPE.search(request.headers.get("Authorization", ""))
        if scope is not None and scope[2] != "ec2":
            return await self._other_service(request, scope[2], scope[1], body)
        action, silence = "?", None
        try:
            fields = parse_query(body)
            action = fields["Action"]
            self.calls[action] += 1
            self._check_region(scope[1] if scope is not None else self._region)
            if self.recorder is not None:
                self.recorder("ec2", action, nest(fields))
            if "ClientToken" in fields:
                self.sendings[fields["ClientToken"]].append(hashlib.sha256(body).hexdigest())
                self.first_sent.setdefault(fields["ClientToken"], self._to.now())
            if self._to.faults.cuts_call(fields):
                return _break_off(request)
            self._to.throttling.admit(fields)
            self._to.faults.check_call(action)
            response = await self._answer(fields, body)
            silence = self._to.faults.loses_answer(fields)
        except Ec2Error as error:
            self.calls["?"] += action == "?"
            self.errors[action, error.code] += 1
            response = web.Response(status=error.status, text=error.body(), content_type="text/xml")
        if silence is None:
            return response
        if silence:
            await self._to.sleep(silence)
        return _break_off(request)

    def _check_region(self, region: str) -> None:
        if region != self._region:
            raise Ec2Error("AuthFailure", f"The lab is {self._region}, not {region}.")

    async def _answer(self, fields: dict[str, str], body: bytes) -> web.Response:
        to, action = self._to, fields["Action"]
        if to.actions.answers(fields):
            text = await to.actions.perform(fields)
            return web.Response(text=text, content_type="text/xml")
        answer = await to.moto.forward(body)
        to.subnets.forwarded(action)
        if "xml" not in answer.content_type:
            # moto's answer to an unknown action.
            raise Ec2Error("InvalidAction", f"Neither the lab nor moto does {action}.")
        if action == "DescribeSubnets" and answer.status == 200:
            answer = answer._replace(body=to.subnets.corrected(answer.body))
        return _passed_back(answer)

    async def _other_service(
        self, request: web.Request, service: str, region: str, body: bytes
    ) -> web.StreamResponse:
        """Answer Service Quotas, Pricing and the lab's own queue, and pass everything else to moto."""
        self.calls[service] += 1
        if self._to.faults.credentials_expired:
            code, message = EXPIRED_TOKEN
            refusal = {"__type": code, "message": message}
            return web.json_response(refusal, status=400, content_type=event_queue.CONTENT_TYPE)
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        target = headers.get("X-Amz-Target", "")
        if self.recorder is not None and target:
            self.recorder(service, target.rpartition(".")[2], json.loads(body))
        if service == event_queue.SERVICE:
            if not self._to.events.has(body):
                return _passed_back(await self._queues.forward(body, headers))
            status, text = await self._to.events.answer(target, body)
            return web.Response(status=status, text=text, content_type=event_queue.CONTENT_TYPE)
        if service == price_list.SERVICE:
            status, text = self._to.prices.answer(target, region, body)
            return web.Response(status=status, text=text, content_type=price_list.CONTENT_TYPE)
        if service == service_quotas.SERVICE:
            status, text = self._to.quotas.answer(target, body)
            return web.Response(status=status, text=text, content_type=service_quotas.CONTENT_TYPE)
        path = request.rel_url.raw_path_qs.lstrip("/")
        return _passed_back(await self._to.moto.forward(body, path, headers))


def _break_off(request: web.Request) -> web.Response:
    """Close the connection. aiohttp needs a response object but does not send it."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _passed_back(answer: MotoAnswer) -> web.Response:
    return web.Response(
        status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type}
    )
