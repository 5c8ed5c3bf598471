"""A clock that only sleeping advances, and a controller and a runner that follow a script."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any


class VirtualClock:
    scale = 1.0

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += max(0.0, seconds)

    def real_timeout(self, seconds: float) -> float:
        return seconds


class ScriptedController:
    """`answers[step]` are given in turn: an exception is raised, None is 204; then `usual`."""

    def __init__(self, agent: ModuleType, clock: VirtualClock) -> None:
        self.agent = agent
        self.clock = clock
        self.answered_at = clock.now()
        self.machine: str | None = None
        self.skew: float | None = 0.1
        self.health_checks: dict[str, Any] = {}
        self.answers: dict[str, list[Any]] = defaultdict(list)
        self.usual: dict[str, Any] = {}
        self.asked: list[tuple[float, str]] = []
        self.bodies: dict[str, dict[str, Any]] = {}
        self.before_release: Callable[[], None] = lambda: None

    def times(self, step: str) -> list[float]:
        return [at for at, said in self.asked if said == step]

    def _answer(self, step: str) -> Any:
        self.asked.append((self.clock.now(), step))
        answer = self.answers[step].pop(0) if self.answers[step] else self.usual.get(step)
        if isinstance(answer, Exception):
            raise answer
        self.answered_at = self.clock.now()
        return answer

    def attest(self) -> dict[str, Any]:
        self.machine = None
        self._answer("attest")
        self.machine = "m-1"
        return self.health_checks

    def poll(self, wait: float) -> Any:
        self.clock.sleep(wait)
        return self._answer("poll")

    def report(self, step: str, body: dict[str, Any]) -> None:
        self.bodies[step] = body
        self._answer(step)

    def may_release(self) -> bool:
        return bool(self._answer("may-release"))

    def release(self, timeout: float) -> int:
        assert 0 < timeout <= 20
        self.before_release()
        return int(self._answer("release"))


class ScriptedRunner:
    """`signs` are what is seen, by seconds since the start; the last one stays."""

    def __init__(self, agent: ModuleType, clock: VirtualClock) -> None:
        self.agent = agent
        self.clock = clock
        self.began = 0.0
        self.script: dict[float, dict[str, Any]] = {}
        self.given: set[float] = set()
        self.started_with: str | None = None
        self.suspended = False
        self.suspensions = 0
        self.killed = False
        self.while_frozen: dict[str, Any] = {}
        self.interrupted_at: list[float] = []
        self.on_interrupt: Callable[[], None] = lambda: None
        self.listens_from = 0.0

    def start(self, jit_config: str, hooks: dict[str, str]) -> None:
        self.started_with, self.hooks = jit_config, hooks
        self.began = self.clock.now()

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"exited": None, "worker": False}
        for at in sorted(self.script):
            if self.clock.now() - self.began >= at:
                once = {k: v for k, v in self.script[at].items() if k not in state}
                state.update({k: v for k, v in self.script[at].items() if k in state})
                if at not in self.given:
                    self.given.add(at)
                    state.update(once)
        return state

    def read_signs(self, wait: float) -> Any:
        assert wait == 0.0 or not self.suspended, (
            "the release is answered while the listener is suspended"
        )
        self.clock.sleep(wait)
        seen = {"message": False, "finished": False, "refused": False, **self._state()}
        if self.suspended:
            seen.update(self.while_frozen)
        return self.agent.Signs(**seen)

    def worker_runs(self) -> bool:
        return bool(self._state()["worker"])

    def suspend(self) -> None:
        self.suspended = True
        self.suspensions += 1

    def resume(self) -> None:
        self.suspended = False

    def interrupt(self) -> bool:
        if self.clock.now() - self.began < self.listens_from:
            return False
        self.interrupted_at.append(self.clock.now())
        self.on_interrupt()
        return True

    def kill(self) -> None:
        self.killed = True


def install_listener(folder: Path, answer: str = "echo 2.336.0") -> None:
    """Write a Runner.Listener, a script whose body is `answer`, that any user may run."""
    (folder / "bin").mkdir(exist_ok=True)
    listener = folder / "bin" / "Runner.Listener"
    listener.write_text(f"#!/bin/sh\n{answer}\n")
    for part in (listener, listener.parent, folder):
        part.chmod(0o755)
