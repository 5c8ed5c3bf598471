"""A browser for the pages of `autoscaler init` and of the lab's GitHub: it follows forms and redirects."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import urljoin

import aiohttp


@dataclass
class Page:
    """What the browser shows: the address, the status, the text, and the form if there is one."""

    url: str
    status: int
    text: str
    policy: str = ""
    action: str = ""
    fields: dict[str, str] = field(default_factory=dict)


class _Form(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.action = ""
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "form":
            assert values["method"] == "post"
            self.action = values["action"] or ""
        if tag == "input":
            self.fields[values["name"] or ""] = values.get("value") or ""


class FakeBrowser:
    """Opens pages and sends forms. `visited` are the addresses, in order."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.visited: list[str] = []

    async def open(self, url: str, **headers: str) -> Page:
        self.visited.append(url)
        async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
            return await self._shown(url, answer)

    async def send(self, page: Page, **changed: str) -> Page:
        """Send the page's form with changed fields, and follow redirects."""
        assert page.action, page.text
        url = urljoin(page.url, page.action)
        self.visited.append(url)
        data = {**page.fields, **changed}
        async with self._session.post(url, data=data, allow_redirects=False) as answer:
            return await self._shown(url, answer)

    async def _shown(self, url: str, answer: aiohttp.ClientResponse) -> Page:
        if answer.status in (302, 303):
            return await self.open(urljoin(url, answer.headers["Location"]))
        text = await answer.text()
        form = _Form()
        form.feed(text)
        policy = answer.headers.get("Content-Security-Policy", "")
        return Page(url, answer.status, text, policy, form.action, form.fields)
