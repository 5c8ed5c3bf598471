"""Inputs that the fuzzers found once, as small as they could be made."""

import pytest

from tests.fuzz.bootstrap_requests import TURN, Step
from tests.fuzz.bootstrap_target import BootstrapTarget


def ask(step: str, body: str = "{}") -> Step:
    """What the first machine says, with the nonce that it has then."""
    return {
        "do": "ask",
        "step": step,
        "machine": 0,
        "nonce": 0,
        "runner": 0,
        "authorization": "Bearer <nonce>",
        "body": body,
        "damage": None,
        "seed": 0,
    }


def ready(target: BootstrapTarget) -> list[Step]:
    """The first machine attests and passes its health checks; a turn assigns it."""
    attestation = (
        f'{{"protocol": 1, "provider": "east", "nonce": "{"ab" * 32}", "agent": "1.0",'
        f' "proof": "{target.proofs.honest(0)}"}}'
    )
    return [ask("attest", attestation), ask("health-checks", '{"passed": true}'), TURN]


@pytest.mark.case(
    "a machine's exit arrives during the replacement of its registration",
    topic="Hostile input",
    source="GitHub: REST, self-hosted runners",
)
def test_an_exit_report_during_the_replacement_of_a_registration_is_answered() -> None:
    """The second poll deletes the registration that was sent. `exit` overtook the answer, and got a 500."""
    target = BootstrapTarget()
    poll, leave = ask("poll", '{"wait": 0}'), ask("exit", '{"detail": "runner left"}')
    episode = [*ready(target), poll, {"do": "together", "asks": [poll, leave]}]
    assert target.try_all([episode]) == []
