"""The benchmark of deliveries beside a planned fleet runs a whole controller."""

from dataclasses import replace

from benchmarks.planned_load import Load, compared, measure


async def test_every_delivery_of_the_load_is_accepted_and_counted() -> None:
    load = Load(
        machines=30,
        jobs=60,
        room=10,
        rate=20.0,
        seconds=3.0,
        skus=3,
        scrape_every=0.5,
        page_every=0.5,
    )
    found = await measure(load)
    assert (found.deliveries, found.deliveries_refused) == (60, 0)
    assert 0.0 < found.durable_p50_ms <= found.durable_p99_ms <= found.durable_max_ms
    # How many more depends on how busy the host is.
    assert found.plans > 0
    assert 0.0 < found.loop_cpu_us < found.controller_cpu_us
    assert found.scrape_max_ms > 0.0
    assert found.page_max_ms > 0.0
    assert found.series > 300
    assert [wanted for _, _, wanted, _ in compared(found)] == [50.0, 0.0, 200.0, 300.0, 5000.0]
    over = replace(found, durable_p99_ms=50.1, series=5000)
    assert [is_ok for *_, is_ok in compared(over)][0::4] == [False, True]
