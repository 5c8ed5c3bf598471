"""The loopback server: takes requests for AWS's API and for the machines' metadata.

Decides who answers (the front's own actions, or moto) and counts every call. Checks no
credentials; a request for another region is refused, for nothing of it is here.
"""

import re
from collections import Counter
from collections.abc import Sequence

from aiohttp import web

from autoscaler.lab.ec2.actions import Actions
from autoscaler.lab.ec2.faults import Faults
from autoscaler.lab.ec2.moto import MotoAnswer, MotoClient
from autoscaler.lab.ec2.query import Ec2Error, parse_query
from autoscaler.lab.ec2.resources import Resources

MAX_REQUEST = 4 * 1024 * 1024
CREDENTIAL_SCOPE = re.compile(r"Credential=[^/,]*/\d{8}/([a-z0-9-]+)/([a-z0-9-]+)/aws4_request")
PASSED_ON = ("Authorization", "Content-Type", "X-Amz-Target", "X-Amz-Date")


class Front:
    """Serves one account in one region."""

    def __init__(
        self, actions: Actions, resources: Resources, moto: MotoClient, faults: Faults, region: str
    ) -> None:
        self._actions = actions
        self._resources = resources
        self._moto = moto
        self._faults = faults
        self._region = region
        self._runner: web.AppRunner | None = None
        self.calls: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.url = ""

    async def start(self, routes: Sequence[web.RouteDef]) -> None:
        """Listen on a free port of loopback, with these routes beside the API."""
        app = web.Application(client_max_size=MAX_REQUEST)
        app.add_routes([*routes, web.post("/{path:.*}", self._handle)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
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
            return await self._other_service(request, scope[2], body)
        action = "?"
        try:
            fields = parse_query(body)
            action = fields["Action"]
            self._check_region(scope[1] if scope is not None else self._region)
            self._faults.check_call(action)
            response = await self._answer(fields, body)
        except Ec2Error as error:
            self.errors[action, error.code] += 1
            response = web.Response(status=error.status, text=error.body(), content_type="text/xml")
        self.calls[action] += 1
        if self._faults.loses_answer(action) and request.transport is not None:
            request.transport.abort()
        return response

    def _check_region(self, region: str) -> None:
        if region != self._region:
            raise Ec2Error("AuthFailure", f"The lab is {self._region}, not {region}.")

    async def _answer(self, fields: dict[str, str], body: bytes) -> web.Response:
        if self._actions.answers(fields):
            text = await self._actions.perform(fields)
            return web.Response(text=text, content_type="text/xml")
        answer = await self._moto.forward(body)
        self._resources.forwarded(fields["Action"])
        if "xml" not in answer.content_type:
            # moto's way of saying that it has no such action.
            raise Ec2Error("InvalidAction", f"Neither the lab nor moto does {fields['Action']}.")
        return _passed_back(answer)

    async def _other_service(
        self, request: web.Request, service: str, body: bytes
    ) -> web.StreamResponse:
        """STS, Service Quotas and the rest: moto's, by the caller's own headers."""
        self.calls[service] += 1
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        path = request.rel_url.raw_path_qs.lstrip("/")
        return _passed_back(await self._moto.forward(body, path, headers))


def _passed_back(answer: MotoAnswer) -> web.Response:
    return web.Response(
        status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type}
    )
