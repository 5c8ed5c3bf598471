"""The console behind the real server: sign-in, sessions, what is refused, and the headers of its answers."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import structlog

from autoscaler.console.assets import read_assets
from autoscaler.console.rendering import Frame
from autoscaler.model import events as e
from autoscaler.model.accounting import MachineUse
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import Address, JobId, MachineId
from autoscaler.model.jobs.job import JobState
from autoscaler.model.operators import HoldKind, Operator, OperatorName, Role, machine_target
from autoscaler.model.reasons.spells import FaultSpell
from autoscaler.server.listening.serving import Serving
from autoscaler.server.operators.console import ConsoleEndpoint
from autoscaler.server.operators.console_pages import ConsolePages
from autoscaler.server.operators.sessions import LIFETIME, MOST_SESSIONS, Sessions
from autoscaler.server.tokens import MOST_WRONG, WRONG_FOR, WrongTokens
from autoscaler.views.grid import Commit
from autoscaler.views.jobs.lists import JobFilter, running_jobs
from autoscaler.views.jobs.past import FailedTries, Past, WaitedFor
from autoscaler.views.listed import Part
from tests.console.serving import OPERATOR, READER, Console, NoWebhook, Tokens, pages, served
from tests.ledger.builders import ALICE, World
from tests.patience import PATIENCE
from tests.planner.fleets import catalogue, sku
from tests.server.asked_world import AskedWorld
from tests.server.fakes import LOOPBACK

HOSTILE = "<script>alert('x')</script>"
PAGES = (
    "/",
    "/skus/gpu",
    "/jobs",
    "/jobs?state=in_progress",
    "/jobs?state=unmatched",
    "/jobs?sku=gpu",
    "/jobs?sku=&repository=acme/widgets&reason=max_machines&older_than=300&page=2",
    "/machines?provider=east&page=3",
    "/jobs/1",
    "/jobs/2",
    "/machines",
    "/machines?state=assigned&sku=gpu",
    "/machines/c0",
    "/explain",
    "/explain?labels=gpu&repository=acme/widgets",
    "/explain?labels=gpuu&repository=acme/widgets",
    "/repositories",
    "/repositories/acme/widgets",
    "/cost",
    "/faults",
    "/runbooks/OutOfCapacity",
)


@dataclass
class Reader:
    """A browser that keeps its cookie, and a console."""

    console: Console
    http: aiohttp.ClientSession
    answers: AskedWorld

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
        async with self.http.get(path, headers=headers or {}, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def post(
        self, path: str, data: Any, headers: Mapping[str, str] | None = None
    ) -> aiohttp.ClientResponse:
        sent = {"Origin": self.console.url} if headers is None else headers
        async with self.http.post(path, data=data, headers=sent, allow_redirects=False) as answer:
            await answer.read()
            return answer

    async def sign_in(self, token: str = READER, wanted: str = "/") -> aiohttp.ClientResponse:
        return await self.post("/sign-in", {"token": token, "next": wanted})


def busy_world() -> AskedWorld:
    """A world with a running job, a waiting one, and names that a page must escape."""
    world = World(catalogue(sku(max_machines=1), sku("cpu")))
    for job in (1, 2):
        world.observe(
            job, JobState.QUEUED, workflow="pull", name=HOSTILE, run_id=7, head_sha="ab" * 20
        )
    world.launch(1)
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), True, HOSTILE)
    world.starts(1, world.assignment("c0"))
    rows = [
        HistoryRow(1000.0, "job", "1", "queued", "webhook"),
        HistoryRow(1001.0, "machine", "c0", "requested", HOSTILE),
        HistoryRow(1030.0, "machine", "c0", "launched"),
        HistoryRow(1090.0, "machine", "c0", "booted"),
    ]
    return AskedWorld(
        world,
        {"1": rows, "2": rows[:1], "c0": rows[1:]},
        commits={7: Commit("ab" * 20, HOSTILE)},
        spells=[
            FaultSpell("quota", "gpu", HOSTILE, 900.0, jobs=7),
            FaultSpell("store_slow", "", "slow", 400.0, 460.0),
        ],
        spent={("gpu", MachineUse.FAILED_LAUNCH): 12.5},
    )


@asynccontextmanager
async def reading(answers: AskedWorld, *, secure: bool = False) -> AsyncIterator[Reader]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with (
        served(answers, secure=secure) as console,
        aiohttp.ClientSession(console.url, cookie_jar=jar) as http,
    ):
        yield Reader(console, http, answers)


@pytest_asyncio.fixture
async def reader() -> AsyncIterator[Reader]:
    async with reading(busy_world()) as one:
        yield one


@pytest.mark.parametrize("path", [*PAGES, "/find?q=gpu"])
async def test_no_page_shows_anything_of_the_fleet_before_the_sign_in(
    reader: Reader, path: str
) -> None:
    status, text = await reader.get(path)
    assert status == 200
    assert 'name="token"' in text
    assert "gpu" not in text.replace("labels=gpu", "").replace("/skus/gpu", "").replace("=gpu", "")
    assert "acme" not in text.replace("acme/widgets", "")


async def test_events_are_refused_before_the_sign_in(reader: Reader) -> None:
    assert (await reader.get("/events"))[0] == 401


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_can_be_read_after_the_sign_in(reader: Reader, path: str) -> None:
    assert (await reader.sign_in()).status == 303
    status, text = await reader.get(path)
    assert status == 200
    assert "on-call" in text
    assert HOSTILE not in text
    assert "<h1" in text


async def test_the_cost_page_has_what_the_money_bought(reader: Reader) -> None:
    await reader.sign_in()
    assert re.search(r'data-label="Failed">\$12\.50<', (await reader.get("/cost"))[1])


async def test_both_roles_may_read(reader: Reader) -> None:
    await reader.sign_in(OPERATOR)
    assert "alice" in (await reader.get("/"))[1]


async def test_the_first_page_has_the_fault_and_the_job(reader: Reader) -> None:
    await reader.sign_in()
    _, text = await reader.get("/")
    assert "max_machines of gpu (1) is reached" in text
    assert '<a href="/jobs/2">' in text


async def test_the_job_page_has_its_stages_reasons_and_links(reader: Reader) -> None:
    await reader.sign_in()
    _, running = await reader.get("/jobs/1")
    assert "It runs" in running
    for words in (
        "decide to launch",
        "launch",
        "boot",
        "https://github.com/acme/widgets/actions/runs/7/job/1",
    ):
        assert words in running
    _, waiting = await reader.get("/jobs/2")
    assert "number 1 of 1 in line" in waiting
    assert "raises max_machines" in waiting


async def test_the_page_of_a_job_that_no_sku_serves_shows_no_start(reader: Reader) -> None:
    await reader.sign_in()
    world = reader.answers.world
    world.queue(3, labels=("gpuu",))
    reader.answers.rows["3"] = [HistoryRow(1000.0, "job", "3", "queued", "webhook")]
    _, page = await reader.get("/jobs/3")
    assert "No machine will be launched for the labels gpuu." in page
    assert "close to gpu" in page
    for words in ("Stages", "decide to launch", "none yet", "Next:"):
        assert words not in page
    world.completes(3, labels=("gpuu",), conclusion="success", started_at=1060.0)
    reader.answers.rows["3"] += [
        HistoryRow(1060.0, "job", "3", "in_progress"),
        HistoryRow(1090.0, "job", "3", "completed"),
    ]
    _, page = await reader.get("/jobs/3")
    assert "No machine will be launched" not in page
    for words in ("success", "Stages", "pick up"):
        assert words in page


async def test_queued_jobs_that_no_sku_serves_are_counted_on_the_first_page_and_listed(
    reader: Reader,
) -> None:
    await reader.sign_in()
    _, none = await reader.get("/jobs?state=unmatched")
    assert "No queued job is without a SKU." in none
    reader.answers.world.queue(3, 4, labels=("gpuu", "<b>"))
    _, first = await reader.get("/")
    assert '<a href="/jobs?state=unmatched">2 queued jobs without a SKU</a>:' in first
    assert '<a class="code" href="/runbooks/reasons#labels">labels</a> 2' in first
    _, waiting = await reader.get("/jobs?state=unmatched")
    for words in (
        '<a href="/jobs/3">',
        "&lt;b&gt;, gpuu",
        "no SKU has all of the job&#39;s labels",
    ):
        assert words in waiting
    _, page = await reader.get("/explain?labels=gpu&repository=")
    assert "A job with these labels runs on" in page
    assert "Give its repository" in page


async def test_a_job_that_is_in_the_store_only_is_shown(reader: Reader) -> None:
    await reader.sign_in()
    known = running_jobs(
        reader.answers.fleet(), reader.answers.waiting, JobFilter(), Part(0, 1)
    ).rows[0]
    explained = reader.answers.explain(JobId(known.id))
    assert explained is not None
    ended = replace(known, id=9, state="completed", conclusion="failure")
    reader.answers.stored[9] = replace(explained, job=ended)
    why = WaitedFor("capacity", "none in the zone", 1.0, 301.0, 300.0)
    tries = FailedTries("gpu", "east/g5", "quota", "Limit: of 8", 2, 1.0, 200.0, "c1")
    reader.answers.pasts[9] = Past((why,), (tries,))
    reader.answers.rows["9"] = [HistoryRow(1.0, "job", "9", "completed")]
    page = (await reader.get("/jobs/9"))[1]
    for said in ("failure", "none in the zone", "5m00s", "east/g5", "Limit: of 8", "c1"):
        assert said in page


async def test_the_cookie_is_for_this_host_and_no_script(reader: Reader) -> None:
    set_cookie = (await reader.sign_in()).headers["Set-Cookie"]
    assert "HttpOnly" in set_cookie
    assert "SameSite=Strict" in set_cookie
    assert f"Max-Age={LIFETIME:.0f}" in set_cookie
    assert "Secure" not in set_cookie
    assert set_cookie.startswith("autoscaler=")
    assert READER not in set_cookie
    async with reading(busy_world(), secure=True) as over_tls:
        secure = (await over_tls.sign_in()).headers["Set-Cookie"]
    assert secure.startswith("__Host-autoscaler=")
    assert "Secure" in secure
    assert "Domain" not in secure


@pytest.mark.parametrize("path", ["/", "/jobs", "/nothing"])
async def test_pages_forbid_inline_scripts_frames_and_caches(reader: Reader, path: str) -> None:
    await reader.sign_in()
    async with reader.http.get(path) as answer:
        if path == "/nothing":
            assert answer.status == 404
            return
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["Referrer-Policy"] == "same-origin"
        assert answer.headers["Cache-Control"] == "no-store"
        text = await answer.text()
    assert " style=" not in text
    assert "<style" not in text
    assert " onclick" not in text
    assert "<script>" not in text


async def test_static_files_are_cached_for_ever_under_their_digest(reader: Reader) -> None:
    assets = read_assets()
    assert {asset.name for asset in assets} == {"console.css", "console.js", "icon.svg"}
    _, text = await reader.get("/")
    for asset in assets:
        async with reader.http.get(asset.address) as answer:
            assert answer.status == 200
            assert "immutable" in answer.headers["Cache-Control"]
            # Browsers refuse a script and a style sheet of another type, because of nosniff.
            assert answer.content_type == asset.content_type
            assert await answer.read() == asset.body
    assert next(one.address for one in assets if one.name == "console.css") in text


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Origin": "URL"}, 403),
        ({"Origin": "URL"}, 303),
        ({"Sec-Fetch-Site": "same-origin"}, 303),
    ],
)
async def test_a_form_of_another_site_is_refused(
    reader: Reader, headers: dict[str, str], status: int
) -> None:
    sent = {name: value.replace("URL", reader.console.url) for name, value in headers.items()}
    answer = await reader.post("/sign-in", {"token": READER}, sent)
    assert answer.status == status
    assert ("Set-Cookie" in answer.headers) == (status == 303)
    signed_out = await reader.post("/sign-out", {}, sent)
    assert signed_out.status == status
    if status == 303:
        assert "Max-Age=0;" in signed_out.headers["Set-Cookie"]
        return
    for path in ("/sign-in", "/sign-out"):
        async with reader.http.post(path, data={"token": READER}, headers=sent) as refused:
            assert "The form was sent by another site." in await refused.text()


@pytest.mark.parametrize("token", ["", "x" * 40, READER[:-1], READER + "r", "é" * 40, "r" * 1025])
async def test_a_wrong_token_is_refused_and_not_logged(reader: Reader, token: str) -> None:
    with structlog.testing.capture_logs() as logs:
        answer = await reader.sign_in(token)
    assert answer.status == 403
    assert "Set-Cookie" not in answer.headers
    assert [line["event"] for line in logs] == ["sign_in_refused"]
    assert not token or token not in str(logs)
    assert 'name="token"' in (await reader.get("/"))[1]


@pytest.mark.case(
    "strangers guess tokens at the sign-in: after ten in a minute they get 429, an operator signs in",
    topic="Hostile input",
    source="OWASP: blocking brute force attacks",
)
async def test_wrong_tokens_are_bounded_and_never_keep_a_valid_one_out(reader: Reader) -> None:
    for number in range(MOST_WRONG):
        assert (await reader.sign_in(f"{number:040}")).status == 403
    with structlog.testing.capture_logs() as logs:
        refused = await reader.post("/sign-in", {"token": "x" * 40, "next": "/jobs/1"})
    assert refused.status == 429
    assert 0 < int(refused.headers["Retry-After"]) <= WRONG_FOR
    assert "Set-Cookie" not in refused.headers
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("sign_in_refused", "too_many_tokens")
    ]
    # The sender of the wrong tokens and the operator may be behind one proxy.
    assert (await reader.sign_in()).status == 303
    assert 'name="token"' not in (await reader.get("/"))[1]


async def test_a_sign_in_after_too_many_wrong_tokens_says_so_and_keeps_the_wanted_page(
    reader: Reader,
) -> None:
    for number in range(MOST_WRONG):
        await reader.sign_in(f"{number:040}")
    form = {"token": "x" * 40, "next": "/jobs/1"}
    headers = {"Origin": reader.console.url}
    async with reader.http.post("/sign-in", data=form, headers=headers) as answer:
        text = await answer.text()
    assert re.search(r"too many wrong tokens .* Try again in \d+ s\.", text)
    assert 'value="/jobs/1"' in text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"x" * 8193, 413),
        (b"token=" + b"&a=" * 10, 400),
        (b"token=\xff", 400),
        (b"", 403),
        (f"token={READER}&token={READER}".encode(), 403),
    ],
)
async def test_a_form_that_is_not_usable_is_refused(
    reader: Reader, body: bytes, status: int
) -> None:
    headers = {"Origin": reader.console.url}
    async with reader.http.post("/sign-in", data=body, headers=headers) as answer:
        text = await answer.text()
    assert answer.status == status
    assert ("The form is not usable." if status != 403 else "This token is not valid.") in text


@pytest.mark.parametrize(
    ("path", "wanted"),
    [("/jobs?sku=gpu", "/jobs?sku=gpu"), ("/jobs?sku=(b)", "/"), ("/jobs?sku=" + "x" * 700, "/")],
)
async def test_the_form_asks_for_the_page_that_was_opened_if_it_can_be_one(
    reader: Reader, path: str, wanted: str
) -> None:
    _, text = await reader.get(path)
    assert f'name="next" value="{wanted}"' in text


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        ("/jobs/1?x=1", "/jobs/1?x=1"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("https://evil.example/", "/"),
        ("/jobs\r\nSet-Cookie: a=b", "/"),
        ("javascript:alert(1)", "/"),
        ("", "/"),
    ],
)
async def test_the_sign_in_leads_to_a_page_of_the_console(
    reader: Reader, wanted: str, place: str
) -> None:
    assert (await reader.sign_in(wanted=wanted)).headers["Location"] == place


async def test_a_sign_out_ends_the_session(reader: Reader) -> None:
    await reader.sign_in()
    cookie = next(iter(reader.http.cookie_jar)).value
    assert (await reader.post("/sign-out", {})).status == 303
    headers = {"Cookie": f"autoscaler={cookie}"}
    assert 'name="token"' in (await reader.get("/", headers))[1]


async def test_a_removed_token_ends_its_sessions(reader: Reader) -> None:
    await reader.sign_in()
    assert 'name="token"' not in (await reader.get("/"))[1]
    del reader.console.tokens.valid[READER]
    assert 'name="token"' in (await reader.get("/"))[1]


def test_sessions_end_after_their_lifetime_and_are_limited() -> None:
    now = [0.0]
    sessions = Sessions(Tokens(), lambda: now[0])
    first = sessions.open(READER)
    assert first is not None
    operator = sessions.operator(first)
    assert operator is not None
    assert (operator.name, operator.role) == ("on-call", Role.READ)
    now[0] = LIFETIME
    assert sessions.operator(first) is None
    cookies = [sessions.open(READER) for _ in range(MOST_SESSIONS + 1)]
    alive = [cookie for cookie in cookies if cookie and sessions.operator(cookie)]
    assert alive == cookies[1:]


def test_a_token_that_signs_in_too_often_ends_sessions_of_its_own() -> None:
    sessions = Sessions(Tokens(), lambda: 0.0)
    tokens = [OPERATOR, *[READER] * MOST_SESSIONS, OPERATOR]
    cookies = [sessions.open(token) or "" for token in tokens]
    alive = [sessions.operator(cookie) is not None for cookie in cookies]
    assert alive == [True, False, False, *[True] * (MOST_SESSIONS - 2), True]


@pytest.mark.parametrize("path", ["/machines", "/machines/c0", "/skus/gpu"])
async def test_a_machine_that_an_operator_holds_is_shown_as_such(path: str) -> None:
    world = World()
    world.make_ready(1)
    world.do(e.HeldByOperator, HoldKind.QUARANTINED, machine_target(MachineId("c0")), ALICE)
    async with reading(AskedWorld(world)) as one:
        await one.sign_in()
        _, text = await one.get(path)
    assert "quarantined by alice since 1970-01-01 00:16Z" in text


async def test_a_link_of_another_site_loads_the_page_again_with_its_cookie(reader: Reader) -> None:
    _, text = await reader.get("/jobs/1", {"Sec-Fetch-Site": "cross-site"})
    assert '<meta http-equiv="refresh" content="0">' in text
    assert '<a href="">' in text
    assert 'name="token"' not in text


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/skus/nothing", 404),
        ("/jobs/99", 404),
        ("/jobs/x", 404),
        ("/jobs/1234567890123456789", 404),
        ("/machines/nothing", 404),
        ("/machines/%2e%2e%2fetc", 404),
        ("/runbooks/..%2f..%2fREADME", 404),
        ("/runbooks/Nothing", 404),
        ("/repositories/acme/%3Cx%3E", 404),
        ("/jobs?state=done", 400),
        ("/jobs?sku=a%20b", 400),
        ("/jobs?sku=nothing", 404),
        ("/jobs?page=0", 400),
        ("/jobs?page=102", 400),
        ("/jobs?limit=5", 400),
        ("/jobs?reason=%3Cscript%3E", 400),
        ("/jobs?older_than=-1", 400),
        ("/machines?provider=nothing", 404),
        ("/machines?state=sleeping", 400),
        ("/explain?labels=a,,b&repository=acme/w", 400),
        ("/explain?labels=a&repository=x", 400),
        ("/find?q=nothing", 404),
    ],
)
async def test_what_is_not_known_gets_a_page_that_says_so(
    reader: Reader, path: str, status: int
) -> None:
    await reader.sign_in()
    found, text = await reader.get(path)
    assert found == status
    assert "To the overview" in text
    if ("%" in path and status == 404) or path == "/jobs/x":
        assert "There is no page at this address." in text
    if path == "/explain?labels=a&repository=x":
        assert "the repository must have the form OWNER/NAME" in text
    if not path.startswith("/find"):
        assert ("This address cannot be used" if status == 400 else "Not found") in text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("gpu", "/skus/gpu"),
        (" 2 ", "/jobs/2"),
        ("https://github.com/acme/widgets/actions/runs/7/job/2", "/jobs/2"),
        ("c0", "/machines/c0"),
        ("i-c0", "/machines/c0"),
        ("ci-0badcafe-c0-1", "/machines/c0"),
    ],
)
async def test_names_are_found(reader: Reader, text: str, place: str) -> None:
    await reader.sign_in()
    async with reader.http.get("/find", params={"q": text}, allow_redirects=False) as answer:
        assert (answer.status, answer.headers["Location"]) == (303, place)


async def test_a_store_that_fails_is_reported_on_the_page(reader: Reader) -> None:
    await reader.sign_in()
    reader.answers.broken = True
    status, text = await reader.get("/jobs/1")
    assert (status, "The history cannot be read" in text) == (503, True)


async def test_the_first_page_is_rendered_once_a_second_for_each_reader(reader: Reader) -> None:
    await reader.sign_in()
    content = reader.console.endpoint._content
    _, first = await reader.get("/")
    content._seen_at = asyncio.get_running_loop().time() + 3600.0
    reader.answers.world.observe(3, JobState.QUEUED)
    assert (await reader.get("/"))[1] == first
    await reader.sign_in(OPERATOR)
    _, of_another = await reader.get("/")
    assert "alice" in of_another
    await reader.sign_in()
    content._seen_at = float("-inf")
    assert (await reader.get("/"))[1] != first


async def test_pages_of_skus_use_the_state_of_the_first_page_for_a_second(reader: Reader) -> None:
    await reader.sign_in()
    content = reader.console.endpoint._content
    await reader.get("/")
    content._seen_at = asyncio.get_running_loop().time() + 3600.0
    state = content._seen
    await reader.get("/skus/gpu")
    assert content._seen is state
    content._seen_at = float("-inf")
    await reader.get("/skus/gpu")
    assert content._seen is not state


async def test_a_stop_cancels_the_pages_that_are_not_being_rendered() -> None:
    content = ConsolePages(busy_world(), pages())
    begun, end = threading.Event(), threading.Event()

    def work(_frame: Frame) -> str:
        begun.set()
        end.wait(PATIENCE)
        return ""

    reader = Operator(OperatorName("alice"), Role.READ)
    running = asyncio.ensure_future(content._render(reader, work))
    waiting = asyncio.ensure_future(content._render(reader, work))
    try:
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        await content.close(aiohttp.web.Application())
        for _ in range(10):
            await asyncio.sleep(0)
        assert waiting.cancelled()
        assert not running.done(), "a stop does not wait for a page"
    finally:
        end.set()
    await running


async def test_an_open_page_gets_an_event_when_the_fleet_changed(reader: Reader) -> None:
    reader.console.endpoint._live._every = 0.01
    await reader.sign_in()
    async with reader.http.get("/events") as events:
        assert events.headers["Content-Type"] == "text/event-stream"
        assert events.headers["X-Accel-Buffering"] == "no"
        assert await events.content.readline() == b"retry: 5000\n"
        await events.content.readline()
        reader.answers.changed += 1
        assert await events.content.readline() == b"event: changed\n"
        # A removed token ends the stream at the next event.
        del reader.console.tokens.valid[READER]
        reader.answers.changed += 1
        rest = await events.content.read()
        assert rest.count(b"event") <= 1


async def test_a_page_that_closes_leaves_the_events_of_the_others(reader: Reader) -> None:
    live = reader.console.endpoint._live
    live._every = 0.01
    await reader.sign_in()
    async with reader.http.get("/events") as other:
        await other.content.readline()
        await other.content.readline()
        async with reader.http.get("/events") as closed:
            await closed.content.readline()
        reader.answers.changed += 1
        assert await other.content.readline() == b"event: changed\n"
        # The stream that was closed is noticed at this event, at the latest.
        reader.answers.changed += 1
        for _ in range(3):
            await other.content.readline()
        assert live._streams == 1


async def test_machines_are_shown_by_their_sku(reader: Reader) -> None:
    await reader.sign_in()
    assert 'href="/machines/c0"' in (await reader.get("/machines?sku=gpu"))[1]
    assert 'href="/machines/c0"' not in (await reader.get("/machines?sku=cpu"))[1]


async def test_a_long_list_has_totals_links_to_its_pages_and_keeps_its_filters(
    reader: Reader,
) -> None:
    world = reader.answers.world
    world.queue(*range(100, 350))
    await reader.sign_in()
    _, first = await reader.get("/jobs?repository=acme/widgets&sku=")
    assert "1 to 100 of 251 jobs, the oldest first." in first
    assert 'href="/jobs?repository=acme%2Fwidgets&amp;page=2" rel="next"' in first
    assert 'rel="prev"' not in first
    assert 'href="/jobs?repository=acme%2Fwidgets&amp;older_than=1800">over 30 min' in first
    assert 'href="/jobs?repository=acme%2Fwidgets&amp;reason=max_machines">' in first
    _, last = await reader.get("/jobs?repository=acme/widgets&page=3")
    assert "201 to 251 of 251 jobs" in last
    assert 'href="/jobs?repository=acme%2Fwidgets&amp;page=2" rel="prev"' in last
    assert 'rel="next"' not in last
    _, beyond = await reader.get("/jobs?page=4")
    assert "The list has 251 jobs now, and so no page 4." in beyond
    _, none = await reader.get("/jobs?older_than=7200")
    assert "No job waits for a machine that these filters admit." in none


@pytest.mark.parametrize("path", ["/machines/c0", "/skus/gpu"])
async def test_a_machine_shows_the_name_of_its_image_beside_its_id(
    reader: Reader, path: str
) -> None:
    machine = reader.answers.world.state.machines[MachineId("c0")]
    machine.placement.image = "ami-0a"
    await reader.sign_in()
    assert ">ami-0a<" in (await reader.get(path))[1]
    reader.answers.image_names = {"ami-0a": "linux-gpu-7"}
    assert ">linux-gpu-7 ami-0a<" in (await reader.get(path))[1]


async def test_the_faults_of_the_last_weeks_are_shown(reader: Reader) -> None:
    await reader.sign_in()
    _, text = await reader.get("/faults")
    assert re.search(r'data-label="Lasted">1m40s <span class="when">\(now\)', text)
    assert 'data-label="Jobs held up">7<' in text
    assert 'data-label="Lasted">1m00s<' in text
    reader.answers.broken = True
    assert (await reader.get("/faults"))[0] == 503


async def test_streams_are_limited_and_end_with_the_server(reader: Reader) -> None:
    reader.console.endpoint._live._most = 1
    await reader.sign_in()
    async with reader.http.get("/events") as first:
        await first.content.readline()
        async with reader.http.get("/events") as second:
            assert (second.status, second.headers["Retry-After"]) == (503, "15")
        await reader.console.endpoint._live.close(None)  # type: ignore[arg-type]
        await first.content.read()
    assert reader.console.endpoint._live._streams == 0


async def test_the_address_of_webhooks_does_not_serve_the_console() -> None:
    settings = replace(LOOPBACK, webhook_listen=Address("127.0.0.1", 0))
    tried = WrongTokens(asyncio.get_running_loop().time)
    endpoint = ConsoleEndpoint(busy_world(), pages(), read_assets(), Tokens(), tried, secure=False)
    async with (
        Serving(settings, NoWebhook(), [endpoint]) as serving,
        aiohttp.ClientSession(f"http://{serving.webhook_address}") as http,
    ):
        for path in ("/", "/jobs", "/events", *(asset.address for asset in read_assets())):
            async with http.get(path) as answer:
                assert answer.status == 404
        async with http.post("/sign-in", data={"token": READER}) as answer:
            assert answer.status == 404
