"""What every provider of machines keeps, whatever it is made of.

Subclass `ProviderContract` in a test module and give it the fixtures `provider` (an opened
Provider of a fleet without machines) and `make_order` (a function from a count and a token to
a LaunchOrder that can be served).
"""

import asyncio
from collections.abc import Callable

import pytest

from autoscaler.controller.ports.provider import (
    MOST_CONSOLE,
    LaunchOrder,
    OutcomeUnknownError,
    ProofRefusedError,
    Provider,
    ProviderError,
)
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import InstallationId, ProviderMachineId

MakeOrder = Callable[[int, str], LaunchOrder]

REFUSALS = {"malformed", "signature", "certificate", "account", "region", "expired"}


async def listed(provider: Provider) -> dict[ProviderMachineId, ListedMachine]:
    """A complete list, by id."""
    return {one.provider_id: one async for page in provider.machines() for one in page}


def name_of(order: LaunchOrder) -> str:
    """The provider's name in the configuration, with which the keys of its offerings begin."""
    return order.offerings[0].partition("/")[0]


class ProviderContract:
    """The tests. Each runs in the event loop of the fixtures."""

    async def test_preparing_the_same_order_again_gives_the_same_text(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        order = make_order(2, "token-same")
        first = await provider.prepare(order)
        assert await provider.prepare(order) == first
        assert first != await provider.prepare(make_order(2, "token-other"))

    async def test_preparing_launches_nothing(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        await provider.prepare(make_order(3, "token-prepare"))
        assert await listed(provider) == {}

    async def test_a_launched_machine_is_listed_as_what_it_was_launched_for(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        order = make_order(2, "token-list")
        answer = await provider.launch(await provider.prepare(order))
        assert len(answer.launched) == 2
        assert answer.failures == ()
        machines = await listed(provider)
        assert set(machines) == {one.provider_id for one in answer.launched}
        for launched in answer.launched:
            machine = machines[launched.provider_id]
            assert (machine.launch_request, machine.sku) == (order.launch_request, order.sku)
            assert machine.installation
            assert not machine.terminated
            assert machine.capacity_type is launched.capacity_type is order.capacity_type
            offering = "/".join(
                (name_of(order), machine.instance_type, machine.zone, machine.capacity_type)
            )
            assert offering in order.offerings
            assert machine.dollars_per_hour >= 0
            assert all(units > 0 for _, units in machine.quota_usage)
            assert machine.launch_time

    async def test_the_same_text_sent_twice_launches_once(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        request = await provider.prepare(make_order(2, "token-twice"))
        first, second = await asyncio.gather(provider.launch(request), provider.launch(request))
        assert {one.provider_id for one in first.launched} == {
            one.provider_id for one in second.launched
        }
        assert len(await listed(provider)) == 2

    async def test_a_terminated_machine_is_listed_as_such_or_not_and_terminating_it_again_is_no_error(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        answer = await provider.launch(await provider.prepare(make_order(2, "token-end")))
        gone, kept = (one.provider_id for one in answer.launched)
        assert await provider.terminate([gone]) == {}
        assert await provider.terminate([gone]) == {}
        machines = await listed(provider)
        assert gone not in machines or machines[gone].terminated
        assert not machines[kept].terminated

    async def test_a_launched_machine_has_the_image_that_is_read(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        order = make_order(1, "token-image")
        image = await provider.image(order.sku)
        await provider.launch(await provider.prepare(order))
        assert {one.image for one in (await listed(provider)).values()} == {image}

    async def test_its_offerings_have_distinct_keys_of_its_own_and_a_price(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        order = make_order(1, "token-offerings")
        offerings = provider.offerings(order.sku, order.option)
        assert offerings
        keys = [offering.key for offering in offerings]
        assert len(set(keys)) == len(keys)
        assert set(order.offerings) <= set(keys)
        assert {offering.provider for offering in offerings} == {name_of(order)}
        assert all(one.dollars_per_hour >= 0 and one.quota_units > 0 for one in offerings)

    async def test_opening_it_again_changes_no_offering(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        order = make_order(1, "token-open")
        before = provider.offerings(order.sku, order.option)
        await provider.open()
        assert provider.offerings(order.sku, order.option) == before

    async def test_its_rates_allow_a_launch(self, provider: Provider) -> None:
        able = provider.capabilities
        assert able.largest_request >= 1
        if able.launch_rate is not None:
            assert able.launch_rate.full.enough

    async def test_the_parts_of_its_capabilities_stay_the_same(self, provider: Provider) -> None:
        before = provider.capabilities
        await provider.open()
        after = provider.capabilities
        assert after.notices is before.notices
        assert after.prices is before.prices
        assert after.limits is before.limits

    async def test_a_machine_uses_the_quota_of_its_offering(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        order = make_order(1, "token-quota")
        offerings = {one.key: one for one in provider.offerings(order.sku, order.option)}
        (launched,) = (await provider.launch(await provider.prepare(order))).launched
        machine = (await listed(provider))[launched.provider_id]
        used = offerings[
            "/".join((name_of(order), machine.instance_type, machine.zone, machine.capacity_type))
        ]
        assert machine.quota_usage in ((), ((used.quota_key, used.quota_units),))

    async def test_quotas_have_the_keys_of_offerings(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        quotas = await provider.quotas()
        name = name_of(make_order(1, "token-quotas"))
        assert all(key.startswith(f"{name}/") for key in quotas)
        assert all(units >= 0 for units in quotas.values())

    async def test_after_an_adoption_new_machines_have_its_id_and_the_others_are_listed_too(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        request = await provider.prepare(make_order(1, "token-before"))
        (before,) = (await provider.launch(request)).launched
        adopted = InstallationId("ad0b7ed1")
        provider.adopt(adopted)
        request = await provider.prepare(make_order(1, "token-after"))
        (after,) = (await provider.launch(request)).launched
        machines = await listed(provider)
        assert machines[after.provider_id].installation == adopted
        assert machines[before.provider_id].installation not in ("", adopted)

    async def test_collecting_terminates_no_machine(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        request = await provider.prepare(make_order(1, "token-unused"))
        (launched,) = (await provider.launch(request)).launched
        await provider.delete_unused([])
        await provider.delete_unused([request])
        assert not (await listed(provider))[launched.provider_id].terminated

    async def test_a_console_is_bounded_text_or_an_error_of_the_port(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        request = await provider.prepare(make_order(1, "token-console"))
        (launched,) = (await provider.launch(request)).launched
        try:
            shown = await provider.console(launched.provider_id)
        except (ProviderError, OutcomeUnknownError):
            return
        assert isinstance(shown, str)
        assert len(shown) <= MOST_CONSOLE

    async def test_a_machine_may_be_protected_twice(
        self, provider: Provider, make_order: MakeOrder
    ) -> None:
        answer = await provider.launch(await provider.prepare(make_order(1, "protected")))
        protect = provider.capabilities.protect
        for _ in range(2 if protect is not None else 0):
            assert protect is not None
            await protect(answer.launched[0].provider_id)

    async def test_an_error_that_the_port_does_not_list_is_translated(
        self, provider: Provider
    ) -> None:
        for method in ("prepare", "launch", "terminate"):
            with pytest.raises((ProviderError, OutcomeUnknownError)):
                await getattr(provider, method)(7)

    async def test_it_may_be_closed_twice(self, provider: Provider) -> None:
        await provider.close()
        await provider.close()

    async def test_ending_nothing_asks_nothing(self, provider: Provider) -> None:
        assert await provider.terminate([]) == {}

    @pytest.mark.parametrize("proof", [b"", b"greeting", b"\x30\x80", b"\x00" * 100_000])
    async def test_a_malformed_proof_is_refused_with_a_fixed_word(
        self, provider: Provider, proof: bytes
    ) -> None:
        with pytest.raises(ProofRefusedError) as refusal:
            await provider.verify(proof)
        assert refusal.value.reason in REFUSALS
