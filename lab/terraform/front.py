"""The loopback server through which Terraform and the AWS CLI talk to moto, for one account.

Adds what moto lacks, so that the modules need no exception for a test:

- EC2 refuses to delete a security group in which machines are.
- EC2 returns the description of a security group rule that names another group.
- EC2 does not show the tags of a launch template as tags of what the template launches.
- S3 refuses what a bucket's policy denies under its conditions. moto ignores the conditions, so the front keeps
  the policies, and moto never sees one.
- SQS returns policies as they were written. moto adds white space, which Terraform takes for a change.
"""

import json
from collections.abc import Callable, Collection, Iterator
from xml.etree import ElementTree

import aiohttp
from aiohttp import web
from yarl import URL

from lab.ec2.front import CREDENTIAL_SCOPE
from lab.ec2.query import Ec2Error, parse_query

MAX_REQUEST = 64 * 1024 * 1024
_OWN = frozenset({"host", "content-length", "transfer-encoding", "connection", "content-encoding"})
"""Headers that belong to one connection."""

UsedGroups = Callable[[], Collection[str]]
"""Returns the IDs of the security groups in which there are machines."""


class TerraformFront:
    """Serves one account of a moto server. `used_groups` is asked before a group is deleted."""

    def __init__(self, moto_url: str, account: str, used_groups: UsedGroups) -> None:
        self._moto_url = moto_url.rstrip("/")
        self._account = account
        self._used_groups = used_groups
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self._bucket_policies: dict[str, bytes] = {}
        # By the ID of the rule.
        self._descriptions: dict[str, str] = {}
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        self._session = aiohttp.ClientSession(
            auto_decompress=False, timeout=aiohttp.ClientTimeout(total=300)
        )
        app = web.Application(client_max_size=MAX_REQUEST)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, auto_decompress=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        scope = CREDENTIAL_SCOPE.search(request.headers.get("Authorization", ""))
        service = "" if scope is None else scope[2]
        if service == "s3" and "policy" in request.query:
            return self._bucket_policy(request.method, request.path.strip("/"), body)
        if service != "ec2":
            return await self._forward(request, body)
        try:
            fields = parse_query(body)
            self._check(fields)
        except Ec2Error as error:
            return web.Response(status=error.status, text=error.body(), content_type="text/xml")
        answer = await self._forward(request, body)
        if answer.status == 200 and isinstance(answer.body, bytes):
            answer.body = self._corrected(fields, answer.body)
        return answer

    def _bucket_policy(self, method: str, bucket: str, body: bytes) -> web.Response:
        if method == "PUT":
            self._bucket_policies[bucket] = body
            return web.Response(status=204)
        if method == "DELETE":
            self._bucket_policies.pop(bucket, None)
            return web.Response(status=204)
        if bucket in self._bucket_policies:
            return web.Response(body=self._bucket_policies[bucket], content_type="application/json")
        text = "<Error><Code>NoSuchBucketPolicy</Code><Message>There is none.</Message></Error>"
        return web.Response(status=404, text=text, content_type="application/xml")

    def _check(self, fields: dict[str, str]) -> None:
        group = fields.get("GroupId", "")
        if fields["Action"] == "DeleteSecurityGroup" and group in self._used_groups():
            raise Ec2Error("DependencyViolation", f"resource {group} has a dependent object")

    def _corrected(self, fields: dict[str, str], content: bytes) -> bytes:
        """Return an answer of moto's EC2 as EC2 gives it."""
        action = fields["Action"]
        if action.startswith("AuthorizeSecurityGroup"):
            said = fields.get("IpPermissions.1.Groups.1.Description", "")
            for _, item in _items(ElementTree.fromstring(content)):  # noqa: S314 - moto's
                # Items without the ID are tags.
                if rule := _text(item, "securityGroupRuleId"):
                    self._descriptions[rule] = said
            return content
        if action not in ("DescribeSecurityGroupRules", "DescribeLaunchTemplateVersions"):
            return content
        root = ElementTree.fromstring(content)  # noqa: S314 - moto's
        for parent, item in list(_items(root)):
            if _text(item, "resourceType") == "launch-template":
                parent.remove(item)
            said = self._descriptions.get(_text(item, "securityGroupRuleId"), "")
            if said and not _text(item, "description"):
                ElementTree.SubElement(item, "description").text = said
        return ElementTree.tostring(root)

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        if self._session is None:
            raise RuntimeError("the front is not started")
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _OWN}
        # moto makes URLs, such as those of queues, from the host of the request.
        headers |= {"x-moto-account-id": self._account, "Host": request.host}
        url = URL(self._moto_url + request.raw_path, encoded=True)
        method = request.method
        async with self._session.request(method, url, data=body, headers=headers) as answer:
            content = await answer.read()
            if request.headers.get("X-Amz-Target") == "AmazonSQS.GetQueueAttributes":
                content = _without_white_space(content)
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _OWN}
            return web.Response(status=answer.status, body=content, headers=kept)


def _items(
    root: ElementTree.Element,
) -> Iterator[tuple[ElementTree.Element, ElementTree.Element]]:
    """Yield each item of each list, after the list."""
    for parent in root.iter():
        for child in parent:
            if child.tag.rpartition("}")[2] == "item":
                yield parent, child


def _text(element: ElementTree.Element, name: str) -> str:
    """Return the text of a child, whatever its namespace; empty if there is none."""
    found = [child.text for child in element if child.tag.rpartition("}")[2] == name]
    return (found[0] or "") if found else ""


def _without_white_space(content: bytes) -> bytes:
    """Return the answer of GetQueueAttributes with compact policies."""
    found = json.loads(content)
    attributes = found.get("Attributes", {})
    for name in ("Policy", "RedrivePolicy"):
        if name in attributes:
            attributes[name] = json.dumps(json.loads(attributes[name]), separators=(",", ":"))
    return json.dumps(found).encode()
