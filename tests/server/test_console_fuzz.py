"""Arbitrary requests to the console over a real socket: none opens a session or makes the server fail."""

import asyncio
import http.client
import sys
import threading
from collections.abc import Iterator
from urllib.parse import quote, urlencode, urlsplit

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.console.serving import READER, served
from tests.patience import PATIENCE
from tests.server.test_console import PAGES, busy_world
from tests.server.test_server_fuzz import header_values, mutated

pytestmark = pytest.mark.systems

EXAMPLES = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

ANSWERS = {200, 303, 400, 403, 404, 405, 408, 413, 414, 415}


class ConsoleThread:
    """A console whose event loop runs in its own thread."""

    def __init__(self) -> None:
        self.url = ""
        self._up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=[self._serve()])

    async def _serve(self) -> None:
        async with served(busy_world(), wrong_tokens=sys.maxsize) as console:
            self.url = console.url
            self._up.set()
            await self._stop.wait()

    def start(self) -> None:
        self._thread.start()
        assert self._up.wait(PATIENCE)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        self._loop.close()

    def ask(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            return answer
        finally:
            connection.close()


@pytest.fixture(scope="module")
def console() -> Iterator[ConsoleThread]:
    console = ConsoleThread()
    console.start()
    yield console
    console.stop()


forms = st.dictionaries(
    st.sampled_from(["token", "next", "x"]), st.text(max_size=60), max_size=4
).map(lambda fields: urlencode(fields, errors="replace").encode())


@EXAMPLES
@given(
    path=st.sampled_from(["/sign-in", "/sign-out"]),
    body=forms | mutated(forms) | st.binary(max_size=200),
    cookie=header_values,
    origin=st.none() | header_values,
)
@example(
    path="/sign-in", body=b"token=" + b"r" * 39 + b"&next=//evil.example", cookie="", origin=None
)
@example(path="/sign-in", body=b"", cookie="", origin="http://[")
def test_random_forms_open_no_session(
    console: ConsoleThread, path: str, body: bytes, cookie: str, origin: str | None
) -> None:
    headers = {"Origin": console.url if origin is None else origin, "Cookie": cookie}
    answer = console.ask("POST", path, body, headers)
    assert answer.status in ANSWERS
    kept = answer.getheader("Set-Cookie")
    assert kept is None or kept.startswith('autoscaler=""; ')
    assert answer.getheader("Location") in (None, "/")


@EXAMPLES
@given(wanted=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@example(wanted="//evil.example")
@example(wanted="/\\evil.example")
@example(wanted="/jobs\r\nX: y")
def test_a_sign_in_leads_nowhere_else(console: ConsoleThread, wanted: str) -> None:
    body = urlencode({"token": READER, "next": wanted}).encode()
    answer = console.ask("POST", "/sign-in", body, {"Origin": console.url})
    place = answer.getheader("Location")
    assert answer.status == 303
    assert place is not None
    assert place.startswith("/")
    assert not place.startswith(("//", "/\\"))
    assert answer.getheader("X") is None


@EXAMPLES
@given(
    path=st.sampled_from(PAGES)
    | st.text(max_size=40).map(lambda text: f"/{quote(text, errors='replace')}"),
    query=st.text(max_size=40).map(lambda text: quote(text, safe="=&", errors="replace")),
    cookie=header_values,
    signed_in=st.booleans(),
)
def test_random_addresses_get_a_page_or_a_refusal(
    console: ConsoleThread, path: str, query: str, cookie: str, signed_in: bool
) -> None:
    headers = {"Cookie": cookie}
    if signed_in:
        body = urlencode({"token": READER}).encode()
        opened = console.ask("POST", "/sign-in", body, {"Origin": console.url})
        headers["Cookie"] = (opened.getheader("Set-Cookie") or "").partition(";")[0]
    answer = console.ask("GET", f"{path}?{query}" if query else path, b"", headers)
    assert answer.status in ANSWERS
