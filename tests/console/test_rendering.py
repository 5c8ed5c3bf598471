"""Charts, links and texts of the console."""

import pytest

from autoscaler.console.charts import HEIGHT, WIDTH, machines_chart, waiting_chart
from autoscaler.console.links import GitHubPages
from autoscaler.console.rendering import Templates
from autoscaler.console.runbooks import read_runbooks
from autoscaler.views.overview import Sample


def test_bands_are_stacked_and_hold_their_value_until_the_next_sample() -> None:
    samples = [
        Sample(0.0, 0, 0, 0, 2, 0),
        Sample(10800.0, 7, 0, 2, 2, 0),
        Sample(21600.0, 3, 0, 2, 2, 0),
    ]
    chart = machines_chart(samples)
    working, ready, booting, ending = chart.bands
    assert (chart.top, chart.peak) == (4, 4)
    assert [band.now for band in chart.bands] == [2, 2, 0, 0]
    half = HEIGHT / 2
    assert working.path == f"M0.0 {half}L{WIDTH}.0 {half}L{WIDTH}.0 {HEIGHT}.0L0.0 {HEIGHT}.0Z"
    assert f"L{WIDTH / 2} {half}L{WIDTH / 2} 0.0L" in ready.path
    assert (booting.name, ending.name) == ("booting", "ending")
    assert waiting_chart(samples).peak == 7


def test_a_chart_of_nothing_has_no_area() -> None:
    assert machines_chart([]).bands[0].path == ""
    assert machines_chart([Sample(5.0, 0, 0, 0, 0, 0)]).top > 0


@pytest.mark.parametrize(
    ("value", "top"),
    [(0, 2), (1, 2), (2, 2), (5, 6), (10, 10), (11, 20), (3500, 4000), (9999, 10000)],
)
def test_the_upper_edge_of_a_chart_is_a_round_number(value: int, top: int) -> None:
    assert waiting_chart([Sample(0.0, value, 0, 0, 0, 0)]).top == top


@pytest.mark.parametrize(
    ("api", "base"),
    [
        ("https://api.github.com", "https://github.com"),
        ("https://api.acme.ghe.com/", "https://acme.ghe.com"),
        ("https://ghe.example.com/api/v3", "https://ghe.example.com"),
        ("https://ghe.example.com/api/v3/", "https://ghe.example.com"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
    ],
)
def test_the_pages_of_github_belong_to_its_api(api: str, base: str) -> None:
    pages = GitHubPages.of_api(api)
    assert pages.repository("acme/widgets") == f"{base}/acme/widgets"
    assert pages.job("acme/widgets", 7, 8) == f"{base}/acme/widgets/actions/runs/7/job/8"
    assert pages.job("acme/widgets", None, 8) == f"{base}/acme/widgets/actions"
    assert pages.run("acme/widgets", 7, 2) == f"{base}/acme/widgets/actions/runs/7/attempts/2"
    assert pages.commit("acme/widgets", "a/b") == f"{base}/acme/widgets/commit/a/b"


def test_every_template_compiles() -> None:
    environment = Templates(GitHubPages("https://github.com"), {})._environment
    names = environment.list_templates()
    assert len(names) > 10
    for name in names:
        environment.get_template(name)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "100 %"), (0.99999, "99.99 %"), (0.999, "99.90 %"), (0.0, "0.00 %"), (None, "")],
)
def test_a_share_is_never_rounded_up_to_all(value: float | None, text: str) -> None:
    share = Templates(GitHubPages("https://github.com"), {})._environment.filters["share"]
    assert share(value) == text


def test_runbooks_have_no_links_that_the_console_does_not_serve() -> None:
    runbooks = dict(read_runbooks())
    assert len(runbooks) > 15
    assert "README" not in runbooks
    reasons = runbooks.pop("reasons")
    assert '<h2 id="capacity">capacity</h2>' in reasons.body
    assert 'href="' not in reasons.body
    for name, one in runbooks.items():
        assert one.title == name
        assert "<h2>Look</h2>" in one.body
        assert 'href="' not in one.body.replace('href="https://', "")
