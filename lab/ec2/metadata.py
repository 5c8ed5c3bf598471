"""The instance metadata service, IMDSv2 only: `/{instance}/latest/...` for each instance.

Answers only with a valid token, and only for existing instances. A token belongs to one instance.
"""

import secrets
import time
from collections.abc import Callable

from aiohttp import web

from lab.ec2.identity import IdentitySigner, render_document
from lab.ec2.instances import Instance, Instances, InstanceState
from lab.ec2.lifecycle import decoded
from lab.ec2.query import timestamp

TOKEN_HEADER = "X-aws-ec2-metadata-token"  # noqa: S105  a header's name
TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
MAX_TTL = 21_600


class MetadataService:
    """Serves the metadata of every instance of one account."""

    def __init__(
        self, instances: Instances, signer: IdentitySigner, account: str, region: str
    ) -> None:
        self._instances = instances
        self._signer = signer
        self._account = account
        self._region = region
        self._tokens: dict[str, tuple[str, float]] = {}
        self._signatures: dict[str, bytes] = {}
        self._readers: dict[str, Callable[[Instance], bytes]] = {
            "dynamic/instance-identity/document": self.document,
            "dynamic/instance-identity/rsa2048": self.signature,
            "meta-data/ami-id": lambda one: one.specification.image.id.encode(),
            "meta-data/instance-id": lambda one: one.id.encode(),
            "meta-data/instance-type": lambda one: one.instance_type.encode(),
            "meta-data/local-ipv4": lambda one: one.private_ip.encode(),
            "meta-data/placement/availability-zone": lambda one: one.zone.encode(),
            "meta-data/placement/region": lambda _: region.encode(),
        }
        self.requests = 0

    def routes(self) -> list[web.RouteDef]:
        """Return the routes to serve."""
        return [
            web.put(r"/{instance:i-[0-9a-f]+}/latest/api/token", self._issue),
            web.get(r"/{instance:i-[0-9a-f]+}/latest/{path:.+}", self._read),
        ]

    def fields(self, one: Instance) -> dict[str, str]:
        """Return the fields of an instance's identity document."""
        return {
            "accountId": self._account,
            "architecture": one.specification.image.architecture,
            "availabilityZone": one.zone,
            "imageId": one.specification.image.id,
            "instanceId": one.id,
            "instanceType": one.instance_type,
            "pendingTime": timestamp(one.launched_at + one.pending_late, ""),
            "privateIp": one.private_ip,
            "region": self._region,
        }

    def document(self, one: Instance) -> bytes:
        """Return an instance's identity document."""
        return render_document(self.fields(one))

    def signature(self, one: Instance) -> bytes:
        """Return the document's signature. It is cached, because signing takes more than a millisecond."""
        if one.id not in self._signatures:
            self._signatures[one.id] = self._signer.sign(self.document(one))
        return self._signatures[one.id]

    def _instance(self, request: web.Request) -> Instance:
        self.requests += 1
        one = self._instances.find(request.match_info["instance"])
        if one is None or one.state in (InstanceState.TERMINATED, InstanceState.STOPPED):
            raise web.HTTPNotFound
        return one

    async def _issue(self, request: web.Request) -> web.Response:
        one = self._instance(request)
        ttl = request.headers.get(TTL_HEADER, "")
        if not ttl.isdecimal() or not 1 <= int(ttl[:9]) <= MAX_TTL:
            raise web.HTTPBadRequest
        token = secrets.token_urlsafe(42)
        # Real seconds: a machine whose time is scaled still needs real ones to come back.
        self._tokens[token] = (one.id, time.monotonic() + int(ttl))
        return web.Response(text=token, headers={TTL_HEADER: ttl})

    async def _read(self, request: web.Request) -> web.Response:
        one = self._instance(request)
        owner, expiry = self._tokens.get(request.headers.get(TOKEN_HEADER, ""), ("", 0.0))
        if owner != one.id or time.monotonic() >= expiry:
            raise web.HTTPUnauthorized
        path = request.match_info["path"]
        if path == "user-data" and one.specification.user_data:
            body = decoded(one.specification.user_data)
            return web.Response(body=body, content_type="application/octet-stream")
        reader = self._readers.get(path)
        if reader is None:
            raise web.HTTPNotFound
        return web.Response(body=reader(one), content_type="text/plain")
