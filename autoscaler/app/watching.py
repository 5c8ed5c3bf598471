"""Creates the reconciler with its tasks: opening, lists, notices, consoles, re-runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autoscaler.app.collecting import keep_out_of_collections
from autoscaler.controller.circuits import Circuits
from autoscaler.controller.consoles import Consoles
from autoscaler.controller.guarded_github import GuardedGitHub, GuardedGitHubLists, GuardedReruns
from autoscaler.controller.intake import Intake
from autoscaler.controller.journal import Journal
from autoscaler.controller.loop_lag import LoopLag
from autoscaler.controller.notice_reader import NoticeReader
from autoscaler.controller.poller import PeriodicTask, Poller
from autoscaler.controller.ports.clock import Clock
from autoscaler.controller.ports.provider import Provider
from autoscaler.controller.ports.store import Store
from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.quotas import KeptQuotas
from autoscaler.controller.rerunner import Rerunner
from autoscaler.controller.syncing import Syncing
from autoscaler.controller.watching_groups import GroupWatch
from autoscaler.github.client import GitHubClient
from autoscaler.model.identifiers import Instant, ProviderName


@dataclass(frozen=True, slots=True)
class World:
    """The external systems that the reconciler reads, and the clock."""

    store: Store
    client: GitHubClient
    github: GuardedGitHub
    providers: Mapping[ProviderName, Provider]
    telemetry: Telemetry
    clock: Clock


def make_poller(
    journal: Journal,
    intake: Intake,
    world: World,
    arrived_until: Instant,
    quotas: KeptQuotas,
    own: Sequence[PeriodicTask],
) -> Poller:
    """Create the reconciler with all tasks; `own` are the caller's."""
    lists = GuardedGitHubLists(world.client.lists)
    syncing = Syncing(journal, lists, world.github, intake.recall, world.telemetry, world.clock)
    groups = GroupWatch(journal, world.github, lists, world.telemetry, world.clock)
    notices = {name: provider.notices for name, provider in world.providers.items()}
    queues = {name: queue for name, queue in notices.items() if queue is not None}
    notice_reader = NoticeReader(journal, queues, world.telemetry, world.clock)
    consoles = Consoles(journal, world.providers)
    circuits = Circuits(journal, world.providers, world.clock)
    rerunner = Rerunner(journal, GuardedReruns(world.client.reruns), world.clock)
    return Poller(
        journal,
        world.store,
        world.github,
        world.providers,
        world.clock,
        arrived_until,
        (
            *own,
            syncing.run,
            groups.run,
            rerunner.run,
            circuits.run,
            LoopLag(world.telemetry).run,
            keep_out_of_collections,
            *notice_reader.tasks,
            *consoles.tasks,
        ),
        quotas.take_in,
    )
