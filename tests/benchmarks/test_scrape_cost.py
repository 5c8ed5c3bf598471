"""/metrics of a fleet as large as PyTorch's has a bounded number of series."""

from benchmarks.scrape_cost import large_fleet, series_in

MOST_SERIES = 5_000


def test_a_busy_week_of_66_skus_has_at_most_5000_series() -> None:
    ledger, telemetry = large_fleet()
    assert len(ledger.state.catalogue.skus) == 66
    assert len(ledger.state.machines) == 3_500
    assert len(ledger.state.jobs) >= 10_000
    assert 3_000 < series_in(b"".join(telemetry.render())) <= MOST_SERIES
