"""The container in which the jobs of a launch option run."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class JobContainer:
    """A job's container: image, user, limits and environment.

    `cpus` is the number of CPUs, and `memory` is in bytes; None means no limit. `shared_memory` is the size of
    /dev/shm in bytes; None means the default of the container runtime. `unknown` are the variables
    whose values only the provider knows, such as those from a Secret.
    """

    image: str
    user: int
    cpus: float | None = None
    memory: int | None = None
    shared_memory: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
