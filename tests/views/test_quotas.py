"""The quotas of a SKU in numbers."""

from dataclasses import replace

from autoscaler.model.identifiers import SkuName
from autoscaler.views.quotas import QuotaView, quotas_of
from tests.ledger.builders import GPU, World


def test_a_sku_shows_what_the_fleet_uses_of_its_quotas_and_may_use() -> None:
    world = World()
    (option, *_) = world.state.catalogue.skus[GPU].launch_options
    offering = option.offerings[0]
    quota, units = offering.quota_key, offering.quota_units
    assert units > 0
    (before,) = quotas_of(replace(world.fleet(), quotas={quota: 3 * units}), GPU)
    assert (before.used, before.limit, before.is_full) == (0, 3 * units, False)
    world.launch(2)
    (seen,) = quotas_of(replace(world.fleet(), quotas={quota: 3 * units}), GPU)
    assert seen == QuotaView(quota, 2 * units, 3 * units, units, units)
    assert not seen.is_full
    (full,) = quotas_of(replace(world.fleet(), quotas={quota: 3 * units - 1}), GPU)
    assert full.is_full
    (unknown,) = quotas_of(world.fleet(), GPU)
    assert (unknown.used, unknown.limit, unknown.is_full) == (2 * units, None, False)
    assert list(quotas_of(world.fleet(), SkuName("none"))) == []
