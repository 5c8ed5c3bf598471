"""Terminations: batches, unknown ids, refusals."""

from collections.abc import Mapping
from typing import Any

import pytest

from autoscaler.controller.ports.provider import ProviderError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.launching.termination import BATCH, terminate_machines
from tests.providers.doubles import ScriptedApi


def machine(number: int) -> ProviderMachineId:
    return ProviderMachineId(f"i-{number:017x}")


def refuse(code: str, message: str) -> ProviderError:
    return ProviderError(FailureClass.UNKNOWN, code, message)


@pytest.mark.case(
    "machines that end together share a request",
    topic="EC2's API",
    source="Karpenter pkg/batcher",
)
async def test_machines_are_terminated_in_batches_each_once() -> None:
    api = ScriptedApi(lambda *_: None)
    wanted = [machine(number) for number in range(2 * BATCH + 1)]
    assert await terminate_machines(api, wanted + wanted[:3]) == {}
    assert [len(arguments["ids"]) for _, arguments in api.calls] == [BATCH, BATCH, 1]
    assert [one for _, arguments in api.calls for one in arguments["ids"]] == wanted


@pytest.mark.case(
    "one id that EC2 does not terminate does not stop the termination of others",
    topic="EC2's API",
    source="EC2: TerminateInstances",
)
async def test_unknown_machines_do_not_stop_the_termination_of_the_others() -> None:
    unknown = {machine(1), machine(3)}

    def answer(_: str, arguments: Mapping[str, Any]) -> None:
        there = sorted(unknown.intersection(arguments["ids"]))
        if there:
            names = ", ".join(there)
            raise refuse("InvalidInstanceID.NotFound", f"The instance IDs '{names}' do not exist")

    api = ScriptedApi(answer)
    assert await terminate_machines(api, [machine(number) for number in range(5)]) == {}
    assert api.calls[-1][1]["ids"] == [machine(0), machine(2), machine(4)]


@pytest.mark.case(
    "one id that EC2 does not terminate does not stop the termination of others",
    topic="EC2's API",
    source="EC2: TerminateInstances",
)
async def test_one_protected_machine_does_not_stop_the_termination_of_the_others() -> None:
    def answer(_: str, arguments: Mapping[str, Any]) -> None:
        if machine(2) in arguments["ids"]:
            raise refuse("OperationNotPermitted", f"The instance '{machine(2)}' may not be ended")

    api = ScriptedApi(answer)
    refused = await terminate_machines(api, [machine(1), machine(2), machine(3)])
    assert list(refused) == [machine(2)]
    assert "OperationNotPermitted" in refused[machine(2)]
    assert api.calls[-1][1]["ids"] == [machine(1), machine(3)]


async def test_a_malformed_id_does_not_stop_the_termination_of_the_others() -> None:
    bad = ProviderMachineId("not-a-machine")

    def answer(_: str, arguments: Mapping[str, Any]) -> None:
        if bad in arguments["ids"]:
            raise refuse("InvalidInstanceID.Malformed", f'Invalid id: "{bad}"')

    api = ScriptedApi(answer)
    assert list(await terminate_machines(api, [machine(1), bad])) == [bad]
    assert api.calls[-1][1]["ids"] == [machine(1)]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("InvalidInstanceID.NotFound", "something is not there"),
        ("RequestLimitExceeded", f"not now, {machine(1)}"),
    ],
)
async def test_a_refusal_that_names_no_machine_is_raised(code: str, message: str) -> None:
    def answer(*_: object) -> None:
        raise refuse(code, message)

    with pytest.raises(ProviderError, match=code):
        await terminate_machines(ScriptedApi(answer), [machine(1)])
