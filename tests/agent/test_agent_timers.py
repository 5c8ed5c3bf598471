"""Every timer of the agent, in virtual time."""

import itertools
import re
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autoscaler.model.jobs.runners import RELEASED_AFTER
from tests.agent.doubles import (
    ScriptedController,
    ScriptedRunner,
    VirtualClock,
    install_listener,
)


class Stage:
    """An agent with a scripted controller and runner, and a separate state folder."""

    def __init__(self, agent: ModuleType, folder: Path) -> None:
        self.clock = VirtualClock()
        self.controller = ScriptedController(agent, self.clock)
        self.runner = ScriptedRunner(agent, self.clock)
        (folder / "runner").mkdir()
        (folder / "runner" / "run.sh").touch()
        install_listener(folder / "runner")
        values = {"root": str(folder), "runner_directory": str(folder / "runner")}
        self.host = agent.Host({**values, "runner_user": "nobody"})
        self.agent = agent.Agent(self.host, self.clock, self.controller, lambda _: self.runner)
        self.module = agent
        self.began = self.clock.now()

    def assignment(self) -> None:
        self.controller.answers["poll"] = [self.module.Assignment("r-1", "secret", {})]

    def live(self) -> str:
        """Run the agent until it powers off. Return the reason."""
        with pytest.raises(self.module.PowerOff) as caught:
            self.agent.live()
        return str(caught.value)

    def runs(self, **script: Any) -> str:
        """Supervise a runner. Return the reason why it ended."""
        self.controller.machine = "m-1"
        self.runner.start("secret", {})
        self.left = self.agent.supervise(self.runner)
        return str(self.left.detail)

    @property
    def lasted(self) -> float:
        return self.clock.now() - self.runner.began


@pytest.fixture
def stage(agent: ModuleType, open_folder: Path) -> Stage:
    return Stage(agent, open_folder)


def test_the_timers_match_the_documentation(agent: ModuleType) -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| (\d+) \|", Path("docs/agent.md").read_text(), re.M)
    reported = {name: float(seconds) for name, seconds in rows}
    source = Path("autoscaler/agent/limits.py").read_text()
    block = source[source.index("# Timers") : source.index("# Bounds")]
    names = re.findall(r"^([A-Z_]+) =", block, re.M)
    assert reported == {name: getattr(agent, name) for name in names}
    assert len(names) == 22
    assert agent.NO_JOB == RELEASED_AFTER


def test_an_agent_attests_polls_runs_a_job_and_reports_the_exit(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.assignment()
    stage.runner.script = {5: {"message": True, "worker": True}, 60: {"exited": 0, "worker": False}}
    assert stage.live() == "the runner exited with status 0"
    steps = [step for _, step in stage.controller.asked if step != "heartbeat"]
    assert steps == ["attest", "stage", "health-checks", "poll", "acknowledge", "exit"]
    assert stage.controller.bodies["stage"] == {"stage": "health_checks"}
    assert stage.controller.bodies["acknowledge"] == {"runner": "r-1"}
    assert stage.runner.started_with == "secret"
    assert "runner-agent: runner r-1 started\n" in capsys.readouterr().err
    assert Path(stage.host.marker).stat().st_mode & 0o777 == 0o600


def test_the_agent_powers_off_after_15_minutes_without_an_answer(stage: Stage) -> None:
    stage.controller.usual["attest"] = stage.module.TryAgain("503")
    assert "15 minutes" in stage.live()
    assert stage.clock.now() - stage.began == pytest.approx(900, abs=1)


def test_each_answer_that_knows_the_machine_restarts_the_15_minutes(stage: Stage) -> None:
    again = stage.module.TryAgain("503")
    stage.controller.answers["poll"] = [again, None, again, None]
    stage.controller.answers["heartbeat"] = [None] * 20
    stage.controller.usual.update(poll=again, heartbeat=again)
    assert "15 minutes" in stage.live()
    last = stage.controller.times("heartbeat")[19]
    assert stage.controller.answered_at == last > stage.began + 1100
    assert stage.clock.now() - last == pytest.approx(900, abs=61)


def test_refused_attestations_do_not_restart_the_15_minutes(stage: Stage) -> None:
    stage.controller.usual["attest"] = stage.module.AttestAgain("401")
    assert "15 minutes" in stage.live()
    assert stage.clock.now() - stage.began == pytest.approx(900, abs=1)


def test_polls_that_are_answered_at_once_are_half_a_second_to_a_second_apart(
    stage: Stage,
) -> None:
    """As by a controller that shuts down, or a proxy."""
    polls = 50

    def at_once(wait: float) -> Any:
        return stage.controller._answer("poll")

    stage.controller.poll = at_once  # type: ignore[method-assign]
    stage.assignment()
    stage.controller.answers["poll"][:0] = [None] * polls
    stage.runner.script = {0: {"exited": 0}}
    stage.live()
    times = stage.controller.times("poll")
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(gaps) == polls
    assert all(0.5 <= gap <= 1.0 for gap in gaps)


def test_retry_after_is_honoured_with_jitter(stage: Stage) -> None:
    stage.controller.answers["attest"] = [stage.module.TryAgain("503", 100.0)]
    stage.assignment()
    stage.runner.script = {0: {"exited": 0}}
    stage.live()
    first, second = stage.controller.times("attest")
    assert 100 <= second - first <= 125


@pytest.mark.case(
    "`Retry-After: 0`: the delays still grow",
    topic="EC2's machines",
    source="RFC 9110, 10.2.3",
)
def test_a_retry_after_of_zero_does_not_stop_the_backoff(agent: ModuleType) -> None:
    """A server that is down may send `Retry-After: 0` (RFC 9110, 10.2.3). The agent still backs off."""
    backoff = agent.Backoff()
    delays = [backoff.next(0.0) for _ in range(10)]
    assert delays[0] >= 0.5
    assert min(delays[6:]) >= 15


def test_retry_delays_grow_up_to_half_a_minute(agent: ModuleType) -> None:
    backoff = agent.Backoff()
    delays = [backoff.next() for _ in range(30)]
    assert all(0.5 <= delay <= 30 for delay in delays)
    assert delays[0] <= 1
    assert min(delays[6:]) >= 15
    assert len({round(delay, 6) for delay in delays[10:]}) > 5


def test_a_refused_heartbeat_while_waiting_leads_to_an_attestation(stage: Stage) -> None:
    stage.controller.answers["poll"] = [stage.module.TryAgain("503", 200.0)]
    stage.controller.answers["heartbeat"] = [stage.module.AttestAgain("401")]
    stage.controller.usual["poll"] = stage.module.PowerOff("410")
    stage.live()
    assert len(stage.controller.times("attest")) == 2


def test_the_agent_repeats_unreceived_health_checks_before_any_poll(stage: Stage) -> None:
    stage.controller.answers["health-checks"] = [stage.module.TryAgain("503")]
    stage.controller.usual["poll"] = stage.module.PowerOff("410")
    stage.live()
    steps = [step for _, step in stage.controller.asked]
    assert steps == ["attest", "stage", "health-checks", "attest", "stage", "health-checks", "poll"]


def test_the_agent_reports_failed_health_checks_and_powers_off(stage: Stage) -> None:
    (Path(stage.host.runner_directory) / "run.sh").unlink()
    assert stage.live() == "the health checks failed: runner"
    assert [step for _, step in stage.controller.asked] == ["attest", "stage", "health-checks"]


def test_failed_checks_of_the_gpus_and_of_the_image_power_the_machine_off(stage: Stage) -> None:
    program = Path(stage.host.root) / "opt/runner-agent/health-check"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho GPU 3 computes wrongly\nexit 1\n")
    program.chmod(0o755)
    assert stage.live() == "the health checks failed: image"
    report = stage.controller.bodies["health-checks"]
    assert not report["passed"]
    last = {"name": "image", "ok": False, "detail": "exited with 1: GPU 3 computes wrongly"}
    assert report["checks"][-1] == last
    # A broken GPU could hang the image's program, which is therefore not run.
    stage.controller.health_checks = {"accelerator": {"vendor": "amd", "count": 1}}
    assert stage.live() == "the health checks failed: gpu_query"
    assert [step for _, step in stage.controller.asked if step in ("poll", "acknowledge")] == []


def test_a_driver_that_cannot_be_installed_powers_the_machine_off(stage: Stage) -> None:
    """Its stages are reported on the way, and a stage without an answer does not stop it."""
    plan = {"vendor": "nvidia", "version": "580.1", "url": "https://x/y", "sha256": "0" * 64}
    stage.controller.health_checks = {"driver": {**plan, "budget_s": 600}}
    stage.controller.answers["stage"] = [stage.module.TryAgain("503")]
    assert stage.live() == "the health checks failed: driver_device"
    assert stage.controller.bodies["stage"] == {"stage": "driver_checks"}
    detail = "the machine has no NVIDIA GPU"
    failed = {"name": "driver_device", "ok": False, "detail": detail}
    assert stage.controller.bodies["health-checks"] == {"passed": False, "checks": [failed]}
    assert stage.controller.times("attest") == [1000.0]
    stage.controller.health_checks = {"driver": {}}
    assert stage.live() == "the health checks failed: driver_plan"
    assert [step for _, step in stage.controller.asked if step == "poll"] == []


def test_the_agent_sends_heartbeats_every_minute_from_attestation_to_exit(stage: Stage) -> None:
    stage.controller.answers["poll"] = [None] * 10 + [stage.module.Assignment("r-1", "secret", {})]
    stage.runner.script = {1: {"worker": True}, 600: {"exited": 0, "worker": False}}
    stage.live()
    heartbeats = stage.controller.times("heartbeat")
    gaps = [later - earlier for earlier, later in itertools.pairwise(heartbeats)]
    assert len(heartbeats) >= 15
    assert all(59 <= gap <= 62 for gap in gaps)


@pytest.mark.case(
    "the controller is away while machines boot and work",
    topic="EC2's machines",
    source="ARC#3450",
)
def test_an_unreachable_controller_ends_no_runner(stage: Stage) -> None:
    stage.controller.usual["heartbeat"] = stage.module.TryAgain("no answer")
    stage.agent._heartbeat_at = stage.clock.now()
    stage.runner.script = {1: {"worker": True}, 80_000: {"exited": 0, "worker": False}}
    assert stage.runs() == "the runner exited with status 0"
    assert stage.lasted >= 80_000


def test_the_answer_ended_stops_only_an_idle_runner(stage: Stage) -> None:
    stage.controller.usual["heartbeat"] = stage.module.PowerOff("410")
    stage.agent._heartbeat_at = stage.clock.now()
    assert stage.runs() == "the controller answered that this machine has ended"
    assert stage.runner.suspended
    assert stage.runner.killed


def test_the_answer_ended_does_not_stop_a_job(stage: Stage) -> None:
    stage.controller.usual["heartbeat"] = stage.module.PowerOff("410")
    stage.agent._heartbeat_at = stage.clock.now() + 30
    stage.runner.script = {1: {"worker": True}, 4000: {"exited": 0, "worker": False}}
    assert stage.runs() == "the runner exited with status 0"


@pytest.mark.case(
    "SIGTERM cancels the job: the agent stops a runner only if its registration is deleted and no"
    " worker runs",
    topic="Runner and listener",
    source="actions/runner run-helper.sh",
)
@pytest.mark.case(
    "a listener restarts again and again (codes 2 to 5) and gets no job",
    topic="Runner and listener",
    source="actions/runner Constants.cs; actions/runner run-helper.sh",
)
def test_without_a_job_for_two_minutes_the_agent_releases_its_registration(stage: Stage) -> None:
    stage.controller.usual.update({"may-release": True, "release": 204})
    assert stage.runs() == "no job came, the registration is deleted"
    assert stage.lasted == pytest.approx(120, abs=2)
    assert stage.runner.suspended


@pytest.mark.parametrize("status", [422, 503, 0])
def test_after_a_failed_release_the_listener_continues(stage: Stage, status: int) -> None:
    stage.controller.usual["may-release"] = True
    stage.controller.answers["release"] = [status, 404]
    assert "deleted" in stage.runs()
    assert stage.runner.suspensions == 2
    assert stage.lasted == pytest.approx(180, abs=4)


@pytest.mark.case(
    "a runner without a registration polls for ever (after a 409 or 404, or a used registration)",
    topic="Runner and listener",
    source="actions/runner#4617; actions/runner#3822",
)
@pytest.mark.parametrize("status", [204, 404])
def test_a_release_answered_after_the_listener_was_resumed_ends_the_idle_listener(
    stage: Stage, status: int
) -> None:
    """The registration is deleted, so the agent waits only for a job that started meanwhile."""
    stage.controller.usual.update({"may-release": True, "release": status})
    stage.controller.before_release = stage.runner.resume
    assert stage.runs() == "the registration is deleted"
    assert stage.runner.suspended
    assert len(stage.controller.times("release")) == 1
    assert stage.lasted == pytest.approx(121, abs=2)


def test_a_job_started_before_a_late_release_answer_runs_to_its_end(stage: Stage) -> None:
    stage.controller.usual.update({"may-release": True, "release": 204})
    stage.controller.before_release = stage.runner.resume
    stage.runner.script = {
        121: {"message": True},
        125: {"worker": True},
        4000: {"exited": 0, "worker": False},
    }
    assert stage.runs() == "the runner exited with status 0"
    assert stage.lasted >= 4000


@pytest.mark.parametrize("step", ["may-release", "release"])
def test_while_the_controller_is_unreachable_the_listener_continues(
    stage: Stage, step: str
) -> None:
    stage.controller.usual.update({"may-release": True, "release": 204})
    stage.controller.answers[step] = [stage.module.TryAgain("no answer")]
    assert "deleted" in stage.runs()
    assert stage.lasted == pytest.approx(180, abs=4)


def test_the_agent_keeps_its_registration_while_the_controller_refuses_the_release(
    stage: Stage,
) -> None:
    stage.controller.answers["may-release"] = [False, False, True]
    stage.controller.usual["release"] = 204
    stage.runs()
    assert len(stage.controller.times("release")) == 1
    assert stage.runner.suspensions == 1
    assert stage.lasted == pytest.approx(240, abs=6)


@pytest.mark.case(
    "GitHub assigns a job while its runner's registration is being deleted",
    topic="Runner and listener",
    source="ARC runner_graceful_stop.go",
)
@pytest.mark.parametrize("sign", [{"message": True}, {"worker": True}])
def test_a_job_found_while_the_listener_is_frozen_runs_to_its_end(
    stage: Stage, sign: dict[str, bool]
) -> None:
    stage.controller.usual.update({"may-release": True, "release": 204})
    stage.runner.while_frozen = sign
    stage.runner.script = {200: {"worker": True}, 300: {"exited": 0, "worker": False}}
    assert stage.runs() == "the runner exited with status 0"
    assert stage.controller.times("release") == []
    assert not stage.runner.suspended


def test_each_limit_counts_exactly_from_its_start(agent: ModuleType) -> None:
    nothing = agent.Signs(None, False, False, False, False)
    idle = agent.Watch(1000.0)
    assert idle.decide(1119.9, nothing) is None
    assert idle.decide(1120.0, nothing) == agent.Watch.RELEASE
    idle.postpone_release(1120.0)
    assert idle.decide(1179.9, nothing) is None
    assert idle.decide(1180.0, nothing) == agent.Watch.RELEASE
    waiting = agent.Watch(1000.0)
    assert waiting.decide(1001.0, nothing._replace(message=True)) is None
    assert waiting.decide(1720.9, nothing) is None
    assert waiting.decide(1721.0, nothing).reason == "hung"


@pytest.mark.case(
    "a listener retries its connection for ever, as behind a proxy that replaces GitHub's "
    "certificate: the exit is logged with the error and counts against the SKU",
    topic="Runner and listener",
    source="actions/runner BrokerMessageListener.cs",
)
def test_an_unused_runner_that_never_connected_reports_that_reason(stage: Stage) -> None:
    """The listener retries a refused TLS connection for ever (BrokerMessageListener.cs)."""
    stage.controller.usual.update({"may-release": True, "release": 204})
    error = "Runner connect error: The SSL connection could not be established."
    look = stage.runner.read_signs
    stage.runner.read_signs = lambda wait: look(wait)._replace(error=error)  # type: ignore[method-assign]
    left = stage.agent.supervise(stage.runner)
    assert left.reason == "not_connected"
    assert left.detail == f"no job came, the registration is deleted: {error}"


def test_a_stopped_agent_does_not_release_its_registration(stage: Stage) -> None:
    """The listener has half a minute to exit, which suspending it would use up."""
    stage.controller.usual.update({"may-release": True, "release": 204})
    look = stage.runner.read_signs

    def stops(wait: float) -> Any:
        if stage.lasted >= 119:
            stage.agent._supervising = True
            stage.agent.stop()
        return look(wait)

    stage.runner.read_signs = stops  # type: ignore[method-assign]
    assert stage.runs() == "the machine is being shut down"
    assert stage.lasted == pytest.approx(149, abs=2)
    assert stage.controller.times("may-release") == []
    assert stage.runner.suspensions == 0


def test_a_job_message_without_a_worker_for_12_minutes_ends_the_runner(stage: Stage) -> None:
    stage.runner.script = {30: {"message": True}}
    assert stage.runs() == "a job message came, but no worker"
    assert stage.lasted == pytest.approx(750, abs=2)
    assert stage.controller.times("may-release") == []


def test_a_later_job_message_restarts_the_12_minutes(stage: Stage) -> None:
    stage.runner.script = {30: {"message": True}, 700: {"message": True}}
    stage.runs()
    assert stage.lasted == pytest.approx(1420, abs=2)


@pytest.mark.case(
    "the worker has ended and its listener stays",
    topic="Runner and listener",
    source="actions/runner JobDispatcher.cs",
)
def test_a_listener_that_stays_5_minutes_after_its_worker_is_ended(stage: Stage) -> None:
    stage.runner.script = {30: {"worker": True}, 1000: {"worker": False}}
    assert stage.runs() == "the worker is gone, the listener stays"
    assert stage.lasted == pytest.approx(1300, abs=2)


def test_a_job_whose_worker_was_never_seen_counts_as_finished(stage: Stage) -> None:
    stage.runner.script = {30: {"message": True, "finished": True}}
    assert stage.runs() == "the worker is gone, the listener stays"
    assert stage.lasted == pytest.approx(330, abs=2)


@pytest.mark.case(
    "a runner without a registration polls for ever (after a 409 or 404, or a used registration)",
    topic="Runner and listener",
    source="actions/runner#4617; actions/runner#3822",
)
def test_a_registration_that_github_refuses_ends_the_runner(stage: Stage) -> None:
    stage.runner.script = {10: {"refused": True}}
    assert stage.runs() == "GitHub refuses the registration"
    assert stage.lasted == pytest.approx(10, abs=2)


@pytest.mark.case(
    "GitHub refuses the version of a runner: the agent reads it from the listener's last error "
    "line or exit status 7; the log and a metric show it",
    topic="Runner and listener",
    source="actions/runner#3651; actions/runner#2246",
)
@pytest.mark.parametrize("seen", [{"deprecated": True}, {"exited": 7}])
def test_a_runner_version_that_github_refuses_ends_the_runner(
    stage: Stage, seen: dict[str, Any]
) -> None:
    """The agent recognizes it by the exit status or, for older listeners, by the log line."""
    said = "An error occurred: Runner version v2.320.0 is deprecated and cannot receive messages."
    stage.runner.script = {10: {**seen, "error": said}}
    assert stage.runs() == f"GitHub refuses the runner's version: {said}"
    assert stage.left.reason == "version_deprecated"
    assert stage.runner.killed


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({5: {"exited": 1}}, "exited"),
        ({5: {"refused": True}}, "registration_refused"),
        ({5: {"refused": True, "exited": 0}}, "registration_refused"),
        ({5: {"message": True}}, "hung"),
        ({5: {"worker": True}, 9: {"worker": False}}, "hung"),
        ({5: {"worker": True}, 9: {"exited": 7, "worker": False, "deprecated": True}}, "exited"),
        ({}, "unused"),
    ],
)
def test_the_exit_report_has_a_reason_of_a_fixed_list(
    stage: Stage, script: dict[float, dict[str, Any]], reason: str
) -> None:
    stage.controller.usual.update({"may-release": True, "release": 204})
    stage.runner.script = script
    stage.runs()
    assert stage.left.reason == reason


def test_an_error_before_a_job_is_not_reported_after_the_job(stage: Stage) -> None:
    stage.runner.script = {
        1: {"error": "Runner connect error: once"},
        5: {"worker": True},
        9: {"exited": 0, "worker": False, "error": "Runner connect error: once"},
    }
    assert stage.runs() == "the runner exited with status 0"


def test_the_exit_report_has_a_reason_and_a_text(stage: Stage) -> None:
    stage.assignment()
    stage.runner.script = {3: {"exited": 1, "error": "Failed to create session. Forbidden"}}
    stage.live()
    assert stage.controller.bodies["exit"] == {
        "reason": "exited",
        "detail": "the runner exited with status 1: Failed to create session. Forbidden",
    }
    checks = {check["name"]: check for check in stage.controller.bodies["health-checks"]["checks"]}
    assert checks["runner_version"] == {"name": "runner_version", "ok": True, "detail": "2.336.0"}


def test_a_refusal_in_the_log_does_not_end_a_running_job(stage: Stage) -> None:
    stage.runner.script = {
        5: {"worker": True},
        10: {"refused": True},
        500: {"exited": 0, "worker": False},
    }
    assert stage.runs() == "the runner exited with status 0"


def test_the_exit_is_reported_for_five_minutes_at_most(stage: Stage) -> None:
    stage.controller.usual["exit"] = stage.module.TryAgain("no answer")
    stage.agent.report_exit(stage.module.ExitCause("exited", "done"))
    assert stage.clock.now() - stage.began == pytest.approx(300, abs=1)


def test_an_exit_report_honours_retry_after(stage: Stage) -> None:
    stage.controller.answers["exit"] = [stage.module.TryAgain("503", 100.0)]
    stage.agent.report_exit(stage.module.ExitCause("exited", "done"))
    first, second = stage.controller.times("exit")
    assert 100 <= second - first <= 125


def test_a_refused_exit_report_is_not_repeated(stage: Stage) -> None:
    stage.controller.answers["exit"] = [stage.module.AttestAgain("401")]
    stage.agent.report_exit(stage.module.ExitCause("exited", "done"))
    assert stage.clock.now() == stage.began


def test_no_runner_starts_where_the_marker_cannot_be_written(stage: Stage) -> None:
    stage.assignment()
    Path(stage.host.state).mkdir(parents=True)
    Path(stage.host.marker).touch()
    assert stage.live() == "the runner could not be started: FileExistsError"
    assert stage.controller.bodies["exit"]["reason"] == "not_started"
    assert stage.runner.started_with is None


def test_no_job_starts_while_the_scheduled_shutdown_cannot_be_cancelled(agent: ModuleType) -> None:
    agent.disarm(["true"])
    with pytest.raises(agent.PowerOff, match="scheduled"):
        agent.disarm(["false"], pause=0.0)


def test_a_machine_with_a_marker_of_an_earlier_boot_powers_off(
    agent: ModuleType, tmp_path: Path
) -> None:
    host = agent.Host({"root": str(tmp_path)})
    agent.refuse_second_boot(host)
    Path(host.state).mkdir(parents=True)
    Path(host.marker).symlink_to("nowhere")
    with pytest.raises(agent.PowerOff):
        agent.refuse_second_boot(host)


@pytest.mark.case(
    "the machine is shut down under a job, as for a spot interruption: the listener has 30 "
    "seconds to cancel the job",
    topic="Runner and listener",
    source="actions/runner Runner.cs",
)
@pytest.mark.parametrize("takes", [8.0, None])
def test_a_stop_is_passed_to_the_runner_which_has_half_a_minute(
    stage: Stage, takes: float | None
) -> None:
    """A runner that cancels its job within that time is not killed; a slower one is."""
    stage.assignment()
    stage.runner.script = {1: {"message": True, "worker": True}}
    stopped: list[float] = []

    def read_signs(wait: float) -> Any:
        if not stopped and stage.runner.started_with and stage.lasted >= 100:
            stage.agent.stop()
            stage.agent.stop()
            stopped.append(stage.clock.now())
        return seen(wait)

    def cancels() -> None:
        if takes is not None:
            gone = stage.lasted + takes
            stage.runner.script[gone] = {"exited": 143, "worker": False}

    seen, stage.runner.read_signs = stage.runner.read_signs, read_signs  # type: ignore[method-assign]
    stage.runner.on_interrupt = cancels
    with pytest.raises(stage.module.Stopped):
        stage.agent.live()
    assert len(stage.runner.interrupted_at) == 1
    took = stage.clock.now() - stopped[0]
    assert took == pytest.approx(30.0 if takes is None else takes, abs=2.5)
    assert stage.controller.bodies["exit"]["reason"] == "stopped"


@pytest.mark.case(
    "the machine is shut down while `run.sh` has no listener yet: the agent signals the listener "
    "once it runs",
    topic="Runner and listener",
    source="actions/runner run-helper.sh",
)
def test_a_stop_also_ends_a_listener_that_starts_after_it(stage: Stage) -> None:
    """run.sh may wait for Docker, or restart its listener, which must not get a job then."""
    stage.assignment()
    stage.runner.listens_from = 10.0

    def read_signs(wait: float) -> Any:
        if stage.runner.started_with and stage.agent._stop_by is None:
            stage.agent.stop()
        return seen(wait)

    def leaves() -> None:
        stage.runner.script[stage.clock.now() - stage.runner.began] = {"exited": 143}

    seen, stage.runner.read_signs = stage.runner.read_signs, read_signs  # type: ignore[method-assign]
    stage.runner.on_interrupt = leaves
    with pytest.raises(stage.module.Stopped):
        stage.agent.live()
    (interrupted,) = stage.runner.interrupted_at
    assert interrupted - stage.runner.began == pytest.approx(10.0, abs=2.0)
    assert stage.clock.now() - interrupted < 3.0


def test_a_stop_before_any_runner_ends_the_agent_at_once(stage: Stage) -> None:
    with pytest.raises(stage.module.Stopped, match="the machine is being shut down"):
        stage.agent.stop()


def test_a_stop_does_not_wait_for_an_unreachable_controller(stage: Stage) -> None:
    stage.assignment()
    stage.controller.usual["exit"] = stage.module.TryAgain("no answer")
    stage.runner.script = {1: {"exited": 143}}
    stage.agent._stop_by = stage.clock.now() + 30
    with pytest.raises(stage.module.Stopped, match="the machine is being shut down"):
        stage.agent.live()
    assert len(stage.controller.times("exit")) == 1


@pytest.mark.case(
    "Windows: `shutdown` exits with 1116 when there is no shutdown to cancel",
    topic="Runner and listener",
    source="Microsoft: system error codes",
)
@pytest.mark.parametrize(("status", "well"), [(0, True), (1116, True), (1, False), (5, False)])
def test_cancelling_a_shutdown_that_is_not_scheduled_succeeds(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch, status: int, well: bool
) -> None:
    """`shutdown /a` with nothing pending ends with ERROR_NO_SHUTDOWN_IN_PROGRESS, 1116."""
    done = subprocess.CompletedProcess[bytes](["shutdown", "/a"], status)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    if well:
        agent.disarm(["shutdown", "/a"], pause=0.0)
    else:
        with pytest.raises(agent.PowerOff):
            agent.disarm(["shutdown", "/a"], pause=0.0)


class WindowsShutdown:
    """`shutdown` of Windows: refuses a second shutdown, with an exit status of WinError.h."""

    def __init__(self, scheduled: float | None) -> None:
        self.scheduled = scheduled
        self.calls: list[str] = []

    def __call__(self, argv: list[str], **_: object) -> "subprocess.CompletedProcess[bytes]":
        self.calls.append(" ".join(argv[1:]))
        return subprocess.CompletedProcess(argv, self._status(argv))

    def _status(self, argv: list[str]) -> int:
        if argv[1] == "/a":
            status, self.scheduled = (1116 if self.scheduled is None else 0), None
            return status
        if self.scheduled is not None:
            return 1190
        self.scheduled = float(argv[-1])
        return 0


@pytest.mark.case(
    "Windows: `shutdown` exits with 1190 while the shutdown of the user data is scheduled",
    topic="Runner and listener",
    source="Microsoft: system error codes",
)
def test_a_scheduled_shutdown_does_not_keep_windows_from_powering_off(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent without valid settings powers off before it cancels the shutdown of the user data."""
    windows = WindowsShutdown(scheduled=2400.0)
    monkeypatch.setattr(subprocess, "run", windows)
    agent.power_off(["shutdown", "/s", "/f", "/t", "0"], ["shutdown", "/a"], tries=1, pause=0.0)
    assert windows.scheduled == 0.0
    assert windows.calls == ["/s /f /t 0", "/a", "/s /f /t 0"]


def test_a_power_off_that_succeeds_cancels_nothing(
    agent: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = WindowsShutdown(scheduled=None)
    monkeypatch.setattr(subprocess, "run", windows)
    agent.power_off(["shutdown", "/s", "/f", "/t", "0"], ["shutdown", "/a"], tries=1, pause=0.0)
    assert windows.calls == ["/s /f /t 0"]
