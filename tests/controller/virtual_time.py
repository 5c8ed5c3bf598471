"""The simulator's virtual time, for ordinary tests."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from autoscaler.simulator.world.processes import OWNER as OWNER
from autoscaler.simulator.world.processes import Tasks as Tasks
from autoscaler.simulator.world.virtual_time import EPOCH as EPOCH
from autoscaler.simulator.world.virtual_time import VirtualClock as VirtualClock
from autoscaler.simulator.world.virtual_time import run as run

P = ParamSpec("P")


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an asynchronous test in virtual time."""

    @functools.wraps(test)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> None:
        run(test(*args, **kwargs))

    return wrapper
