"""The interface between the lab's EC2 and the host that runs its machines.

Also the lab's runner protocol, between the stand-in for GitHub's runner and the lab's GitHub:

| request (`Authorization: Bearer <token>`) | answer |
|---|---|
| `POST {server}/lab/runners/{id}/connect` | 204 online; 404 registration gone |
| `POST {server}/lab/runners/{id}/message` `{"wait": REAL_SECONDS, "version": TEXT}` | 200 `{"job": {"id", "name", "seconds", "repository", "head", "event", "ref", "private"}}`, 204 none yet, 403 that version of the runner is too old, 404 gone |
| `POST {server}/lab/runners/{id}/started` `{"job": ID}` | 204; the job is in progress |
| `POST {server}/lab/runners/{id}/renew` `{"job": ID}` | 204; the job's lock holds another 10 lab minutes; 200 `{"over": true}`: so it does, and the job is to end now |
| `POST {server}/lab/runners/{id}/completed` `{"job": ID, "conclusion": TEXT, "stepped": BOOL}` | 204; the registration is gone |

A lab JIT configuration is base64 of JSON `{"server", "runner_id", "token", "name", "scale"}`;
`seconds` above are real seconds, `scale` is lab seconds per real second.
"""  # noqa: E501

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

RUNNER_VERSION = "2.338.0"
"""The version of actions/runner in an image that does not name another."""

FREE_GB = 100.0
"""The free space of a disk in GiB, where nothing else says it."""


@dataclass(frozen=True, slots=True)
class LabMachine:
    """One instance to boot. `metadata_url` is its metadata service, `sku` the value of its SKU tag.

    `platform` is linux or windows. The host awaits `powered_off` once, when the machine has powered
    itself off; EC2 then terminates it. `runner_version` is the version of actions/runner in its
    image, empty for a stock image.
    `free_gb` is the free space of its disk in GiB, with the image on it.
    """

    instance_id: str
    instance_type: str
    platform: str
    user_data: str
    metadata_url: str
    powered_off: Callable[[], Awaitable[None]]
    sku: str = ""
    runner_version: str = RUNNER_VERSION
    free_gb: float = FREE_GB


class MachineHost(Protocol):
    """Runs lab machines. Methods ignore unknown instances."""

    async def boot(self, machine: LabMachine) -> None:
        """Start the machine. Returns while it still boots."""

    async def shut_down(self, instance_id: str) -> None:
        """Shut down the machine's operating system, which stops its agent, and wait for the end.

        Does not call `powered_off`.
        """

    async def kill(self, instance_id: str) -> None:
        """Kill all processes of the machine and wait for their end. Does not call `powered_off`."""

    def console(self, instance_id: str) -> str:
        """Return the machine's console output so far, also after its end."""

    async def close(self) -> None:
        """Kill every machine. Idempotent."""


class RebootingHost(MachineHost, Protocol):
    """A host whose machines are real processes, which a reboot ends."""

    async def reboot(self, instance_id: str) -> None:
        """End all processes of the machine, and start those that its disk starts at boot."""
