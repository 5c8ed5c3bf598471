"""What every provider of machines keeps, whatever it is made of.

Subclass `ProviderContract` in a test module and give it the fixtures `provider` (an opened
Provider of a fleet without machines) and `make_order` (a function from a count and a token to
a LaunchOrder that can be served).
"""

import asyncio
from collections.abc import Callable

import pytest

from autoscaler.controller.ports.provider import LaunchOrder, ProofRefusedError, Provider
from autoscaler.model.events import ListedMachine
from autoscaler.model.identifiers import ProviderMachineId

MakeOrder = Callable[[int, str], LaunchOrder]

REFUSALS = {"malformed", "signature", "certificate", "account", "region", "expired"}


async def listed(provider: Provider) -> dict[ProviderMachineId, ListedMachine]:
    """A complete list, by id."""
    return {one.provider_id: one async for page in provider.machines() for one in page}


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
                (provider.name, machine.instance_type, machine.zone, machine.capacity_type)
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

    async def test_an_ended_machine_is_gone_or_says_so_and_ending_it_again_is_no_error(
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

    async def test_ending_nothing_asks_nothing(self, provider: Provider) -> None:
        assert await provider.terminate([]) == {}

    @pytest.mark.parametrize("proof", [b"", b"hello", b"\x30\x80", b"\x00" * 100_000])
    async def test_a_proof_that_is_none_is_refused_with_a_fixed_word(
        self, provider: Provider, proof: bytes
    ) -> None:
        with pytest.raises(ProofRefusedError) as refusal:
            await provider.verify(proof)
        assert refusal.value.reason in REFUSALS
