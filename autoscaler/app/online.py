"""Asks the providers of a configuration whether they would accept it, for `check --online`."""

import asyncio
from collections.abc import Sequence

from autoscaler import config
from autoscaler.config.provider_kind import OnlineCheck, ProviderKind
from autoscaler.providers.registry import provider_kinds


def check_online(
    configuration: config.Configuration, kinds: Sequence[ProviderKind] | None = None
) -> OnlineCheck:
    """Return the answers of all providers. Changes nothing.

    `kinds` are those of the registry by default.
    """
    return asyncio.run(_check(configuration, provider_kinds() if kinds is None else kinds))


async def _check(configuration: config.Configuration, kinds: Sequence[ProviderKind]) -> OnlineCheck:
    found = [await kind.check_online(configuration) for kind in kinds]
    return OnlineCheck(
        tuple(problem for one in found for problem in one.problems),
        tuple(line for one in found for line in one.lines),
    )
