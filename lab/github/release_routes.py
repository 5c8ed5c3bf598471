"""The REST route of the releases of actions/runner, a public repository that no App of the lab is installed on.

Shapes and statuses: GitHub's REST documentation, "Releases".
"""

from typing import Any

from aiohttp import web

from lab.github.credentials import Caller
from lab.github.gateway import Gateway, NotFoundError
from lab.github.shapes import RUNNER_VERSION, Shapes, timestamp

_PUBLISHER = 44036562
_FIRST_RELEASE = 310_000_001
_DAY = 86_400.0


class RunnerReleases:
    """The releases, in the order of publication. At first only that of the version on the lab's machines."""

    def __init__(self, now: float) -> None:
        self.published: list[tuple[str, float]] = [(f"v{RUNNER_VERSION}", now - 10 * _DAY)]

    def publish(self, tag: str, at: float) -> None:
        """Publish a release with this tag."""
        self.published.append((tag, at))


class ReleaseRoutes:
    """The handler for callers with any installation token: the repository is public."""

    def __init__(self, gateway: Gateway, releases: RunnerReleases, shapes: Shapes) -> None:
        self._gateway = gateway
        self._releases = releases
        self._shapes = shapes

    def routes(self) -> list[web.RouteDef]:
        """Return the route that lists a repository's releases."""
        path = "/repos/{owner}/{repo}/releases"
        return [self._gateway.for_installation("GET", path, self._list)]

    async def _list(self, request: web.Request, _caller: Caller) -> web.Response:
        where = request.match_info
        if (where["owner"].lower(), where["repo"].lower()) != ("actions", "runner"):
            raise NotFoundError
        page = self._gateway.page_of(request)
        numbered = list(enumerate(self._releases.published, _FIRST_RELEASE))
        found = [self._shape(number, *one) for number, one in page.cut(numbered[::-1])]
        headers = self._gateway.page_links(request, page, len(numbered))
        return web.json_response(found, headers=headers)

    def _shape(self, number: int, tag: str, at: float) -> dict[str, Any]:
        repository = f"{self._shapes.api}/repos/actions/runner"
        url = f"{repository}/releases/{number}"
        return {
            "url": url,
            "html_url": f"{self._shapes.pages}/actions/runner/releases/tag/{tag}",
            "assets_url": f"{url}/assets",
            "upload_url": f"{url}/assets{{?name,label}}",
            "tarball_url": f"{repository}/tarball/{tag}",
            "zipball_url": f"{repository}/zipball/{tag}",
            "id": number,
            "node_id": f"RE_{number}",
            "tag_name": tag,
            "target_commitish": "main",
            "name": tag,
            "body": "",
            "draft": False,
            "prerelease": False,
            "created_at": timestamp(at),
            "published_at": timestamp(at),
            "author": self._shapes.user("github-actions[bot]", _PUBLISHER, "Bot"),
            "assets": [],
        }
