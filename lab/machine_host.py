"""What the lab's EC2 needs of the thing that runs its machines, and the other way round.

Also the lab's own runner protocol, spoken between GitHub's stand-in runner and the lab's GitHub:

| request (`Authorization: Bearer <token>`) | answer |
|---|---|
| `POST {server}/lab/runners/{id}/connect` | 204 online; 404 registration gone |
| `POST {server}/lab/runners/{id}/message` `{"wait": REAL_SECONDS, "version": TEXT}` | 200 `{"job": {"id", "name", "seconds"}}`, 204 none yet, 403 that version of the runner is too old, 404 gone |
| `POST {server}/lab/runners/{id}/started` `{"job": ID}` | 204; the job is in progress |
| `POST {server}/lab/runners/{id}/renew` `{"job": ID}` | 204; the job's lock holds another 10 lab minutes; 200 `{"over": true}`: so it does, and the job is to end now |
| `POST {server}/lab/runners/{id}/completed` `{"job": ID, "conclusion": TEXT}` | 204; the registration is gone |

A lab JIT configuration is base64 of JSON `{"server", "runner_id", "token", "name", "scale"}`;
`seconds` above are real seconds, `scale` is lab seconds per real second.
"""  # noqa: E501

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

RUNNER_VERSION = "2.336.0"
"""The version of actions/runner in an image that names no other."""


@dataclass(frozen=True, slots=True)
class LabMachine:
    """One instance to bring up. `metadata_url` is this instance's own metadata service, `sku` what
    its tag of that name says.

    `platform` is linux or windows. `powered_off` is to be awaited once, when the machine has
    powered itself off (EC2 then ends it: instance-initiated shutdown terminates). `runner_version` is
    the version of actions/runner that its image holds.
    """

    instance_id: str
    instance_type: str
    platform: str
    user_data: str
    metadata_url: str
    powered_off: Callable[[], Awaitable[None]]
    sku: str = ""
    runner_version: str = RUNNER_VERSION


class MachineHost(Protocol):
    """Runs lab machines. Methods raise nothing for unknown instances."""

    async def boot(self, machine: LabMachine) -> None:
        """Start it; returns once it is under way, not once it is up."""

    async def shut_down(self, instance_id: str) -> None:
        """Shut its operating system down, which stops its agent; everything is gone on return.

        `powered_off` is not called.
        """

    async def kill(self, instance_id: str) -> None:
        """Pull the plug: everything it runs is gone on return. `powered_off` is not called."""

    def console(self, instance_id: str) -> str:
        """What it has written so far, up or down; empty for one that wrote nothing."""

    async def close(self) -> None:
        """Kill every machine. Idempotent."""
