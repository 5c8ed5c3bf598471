"""The console of a machine: the latest output, else what EC2 kept of the last transition."""

import base64

import pytest

from autoscaler.controller.ports.provider import MOST_CONSOLE, OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.ec2.provider import Ec2Provider
from tests.providers.contract import MakeOrder
from tests.providers.ec2_front import Ec2Front, Reply

pytestmark = pytest.mark.asyncio(loop_scope="session")

MACHINE = ProviderMachineId("i-0123456789abcdef0")


def shows(written: str) -> Reply:
    """EC2's answer, in its own form."""
    output = base64.b64encode(written.encode()).decode()
    body = (
        '<GetConsoleOutputResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">'
        f"<instanceId>{MACHINE}</instanceId><timestamp>2026-11-21T09:00:00.000Z</timestamp>"
        f"<output>{output}</output></GetConsoleOutputResponse>"
    )
    return Reply(200, body=body)


def asked(front: Ec2Front) -> list[tuple[str, str]]:
    """The machine and `Latest` of each request so far."""
    return [(one["InstanceId"], one["Latest"]) for one in front.requests("GetConsoleOutput")]


async def test_the_latest_console_output_is_returned_up_to_its_bound(
    provider: Ec2Provider, front: Ec2Front
) -> None:
    before = len(asked(front))
    front.script("GetConsoleOutput", shows("lost" + "x" * MOST_CONSOLE), shows("panic é"))
    assert await provider.console(MACHINE) == "x" * MOST_CONSOLE
    assert await provider.console(MACHINE) == "panic é"
    assert asked(front)[before:] == [(MACHINE, "true")] * 2


@pytest.mark.case(
    "a console has no latest output, is empty, may not be read, or does not answer",
    topic="EC2's machines",
    source="EC2: instance console output",
)
@pytest.mark.parametrize(
    "first",
    [
        Reply(400, "UnsupportedOperation", "This instance type has no latest output"),
        Reply(400, "IncorrectInstanceState", "It is not running"),
        shows(""),
    ],
    ids=["type", "state", "empty"],
)
async def test_without_the_latest_output_the_stored_console_output_is_returned(
    provider: Ec2Provider, front: Ec2Front, first: Reply
) -> None:
    before = len(asked(front))
    front.script("GetConsoleOutput", first, shows("kept"))
    assert await provider.console(MACHINE) == "kept"
    assert asked(front)[before:] == [(MACHINE, "true"), (MACHINE, "false")]


async def test_a_machine_that_wrote_nothing_has_an_empty_console(
    provider: Ec2Provider, front: Ec2Front
) -> None:
    nothing = shows("").body.replace("<output></output>", "")
    front.script("GetConsoleOutput", *[Reply(200, body=nothing)] * 2)
    assert await provider.console(MACHINE) == ""


async def test_a_refusal_is_raised_with_its_class(provider: Ec2Provider, front: Ec2Front) -> None:
    front.script("GetConsoleOutput", Reply(403, "UnauthorizedOperation", "not allowed"))
    with pytest.raises(ProviderError) as caught:
        await provider.console(MACHINE)
    assert caught.value.failure is FailureClass.CONFIGURATION
    front.script("GetConsoleOutput", Reply(500, "InternalError", "sorry"))
    with pytest.raises(OutcomeUnknownError):
        await provider.console(MACHINE)


async def test_moto_shows_the_console_of_a_machine_that_was_launched(
    provider: Ec2Provider, make_order: MakeOrder
) -> None:
    answer = await provider.launch(await provider.prepare(make_order(1, "console")))
    assert "Linux version" in await provider.console(answer.launched[0].provider_id)
