"""Groups what is wrong by its cause: one cause is one fault, with everything that it causes. Pure.

A `Fault` goes in for each SKU, run of waiting jobs or circuit breaker, and one comes out for each cause.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from autoscaler.model.cooldowns import (
    Cooldown,
    boots_key,
    exits_key,
    launch_option_key,
    open_circuit,
)
from autoscaler.model.fleet import Fleet
from autoscaler.model.identifiers import SkuName
from autoscaler.model.jobs.demand import DemandClass
from autoscaler.model.machines.failures import FailureClass
from autoscaler.model.operators import HoldKind
from autoscaler.model.reasons.entry import Code
from autoscaler.model.reasons.faults import MACHINES_FAIL, Fault
from autoscaler.model.reasons.table import CODES, FaultCode, WaitCode
from autoscaler.model.reasons.waiting import WaitReason

HOLDS = frozenset(HoldKind)
"""The codes of what operators decided."""

_MOST_MESSAGES = 2
"""Maximum number of different messages of one cause, such as two images that do not exist."""

_OF_THE_FLEET = frozenset({WaitCode.FLEET_MACHINES, WaitCode.FLEET_DOLLARS})
_OF_THE_ACCOUNT = frozenset(
    {
        WaitCode.REGISTRATION_RATE,
        WaitCode.GITHUB_PRIMARY_LIMIT,
        WaitCode.GITHUB_SECONDARY_LIMIT,
        WaitCode.JOB_UNCONFIRMED,
        WaitCode.RUN_UNKNOWN,
    }
)
_OF_THE_PROVIDER = frozenset({WaitCode.THROTTLED, WaitCode.LAUNCH_RATE})
_REFUSED_BY_PROVIDER = frozenset(
    {
        WaitCode.CAPACITY,
        WaitCode.UNSUPPORTED,
        WaitCode.CONFIGURATION,
        WaitCode.QUOTA,
        WaitCode.UNKNOWN,
    }
)

_GITHUB_LIMITS = (
    WaitCode.GITHUB_PRIMARY_LIMIT,
    WaitCode.GITHUB_SECONDARY_LIMIT,
    FaultCode.GITHUB_BUDGET_LOW,
)

_EFFECTS: Mapping[str, tuple[str, ...]] = {
    WaitCode.HEALTH_CHECK: (FaultCode.HEALTH_CHECKS_FAIL,),
    WaitCode.CIRCUIT_OPEN: (FaultCode.RUNNER_VERSION_REFUSED, FaultCode.HEALTH_CHECKS_FAIL),
    FaultCode.OPTION_CIRCUIT_OPEN: (FaultCode.HEALTH_CHECKS_FAIL,),
    WaitCode.NO_OFFERING: (FaultCode.PROVIDER_NOT_LISTED,),
    # A runner that gets no job keeps its machine assigned for some minutes.
    FaultCode.LEAK_SUSPECTED: (FaultCode.MACHINES_SILENT, WaitCode.NOT_ASSIGNED),
    FaultCode.STORE_SLOW: (FaultCode.CONTROLLER_SLOW,),
    FaultCode.GITHUB_BUDGET_LOW: (WaitCode.GITHUB_PRIMARY_LIMIT,),
    FaultCode.GITHUB_LISTS_STALE: _GITHUB_LIMITS,
    WaitCode.JOB_UNCONFIRMED: (*_GITHUB_LIMITS, FaultCode.GITHUB_LISTS_STALE),
    WaitCode.RUN_UNKNOWN: (*_GITHUB_LIMITS, FaultCode.GITHUB_LISTS_STALE),
}
"""By code of an effect: its causes, the most specific first. They concern the same SKU or account.

An effect that is a cause of others stands before them.
"""
_IN_ORDER = tuple(_EFFECTS)

_LATE = frozenset({FaultCode.JOB_WAITS_FOR_HOURS, FaultCode.JOBS_START_LATE})
"""Effects of whatever holds up jobs of the SKU."""

_DELAYS_ALL = frozenset(
    {FaultCode.WEBHOOKS_SILENT, FaultCode.STORE_FAILS, FaultCode.CONTROLLER_SLOW}
)
"""Causes that let the jobs of every SKU start late."""


_HOLDS_UP = HOLDS | {
    WaitCode.HEALTH_CHECK,
    WaitCode.BOOT_DEADLINE,
    WaitCode.CIRCUIT_OPEN,
    FaultCode.HEALTH_CHECKS_FAIL,
    FaultCode.RUNNER_VERSION_REFUSED,
    FaultCode.JOB_WAITS_FOR_HOURS,
}
"""Faults that hold up jobs of their SKUs, even if no job waits for them at this moment."""


def cause_of_wait(fleet: Fleet, demand: DemandClass, reason: WaitReason) -> tuple[Code, str]:
    """Return the code of the cause that holds up jobs of a class, and what the cause concerns."""
    code, sku = reason.code, demand.skus[0]
    if code in _OF_THE_FLEET:
        return code, ""
    if code in _OF_THE_ACCOUNT:
        return code, demand.account
    if code is WaitCode.REGISTRATION_ON_HOLD:
        return code, demand.scope
    if code is WaitCode.NOT_ASSIGNED:
        return code, reason.where
    if code is WaitCode.PAUSED:
        return code, reason.where.rpartition("/")[2]
    if code in _OF_THE_PROVIDER:
        return code, reason.where
    if code is WaitCode.CIRCUIT_OPEN:
        return _cause_of_breaker(fleet, demand.skus, reason.where)
    if code in _REFUSED_BY_PROVIDER:
        return _refused(code, reason.error, reason.where, sku)
    return code, sku


def cause_of_circuit(row: Cooldown, sku: str, provider: str = "") -> tuple[Code, str]:
    """Return the cause of an open circuit breaker. `provider` is that of its launch option, if it has one."""
    if row.image and not provider:
        return FaultCode.RUNNER_VERSION_REFUSED, row.image
    if row.failure in (FailureClass.HEALTH_CHECK, FailureClass.BOOT_DEADLINE):
        return WaitCode(row.failure.value), sku
    if provider and row.error:
        return _refused(WaitCode(row.failure.value), row.error, provider, sku)
    return (FaultCode.OPTION_CIRCUIT_OPEN if provider else WaitCode.CIRCUIT_OPEN), sku


def _cause_of_breaker(fleet: Fleet, skus: Sequence[SkuName], key: str) -> tuple[Code, str]:
    """Return the cause of the circuit breaker with this key, for which jobs of these SKUs wait."""
    row = open_circuit(fleet.cooldowns, key)
    if row is None:  # It closed since the plan.
        return WaitCode.CIRCUIT_OPEN, skus[0]
    owners = {kind(sku): (sku, "") for sku in skus for kind in (boots_key, exits_key)} | {
        launch_option_key(sku, index): (sku, str(option.provider))
        for sku in skus
        for index, option in enumerate(fleet.catalogue.skus[sku].launch_options)
    }
    sku, provider = owners.get(key, (skus[0], ""))
    code, about = cause_of_circuit(row, sku, provider)
    return (WaitCode.CIRCUIT_OPEN if code is FaultCode.OPTION_CIRCUIT_OPEN else code), about


def _refused(code: WaitCode, error: str, where: str, sku: str) -> tuple[Code, str]:
    """Return the cause of a refused launch: the quota, else the provider's error, else the SKU's machines."""
    if code is WaitCode.QUOTA and "/" in where:
        return code, where
    if error:
        return code, f"{where} {error}"
    if code is WaitCode.UNKNOWN:
        return WaitCode.CIRCUIT_OPEN, sku
    return code, where if code is WaitCode.CAPACITY else sku


def by_cause(found: Iterable[Fault]) -> tuple[Fault, ...]:
    """Return one fault for each cause, in the order of their urgency and of the jobs that they hold up."""
    effects: list[Fault] = []
    causes: list[Fault] = []
    for fault in found:
        (effects if fault.code in _EFFECTS or fault.code in _LATE else causes).append(fault)
    known = _merged(causes)
    for effect in sorted(_merged(effects, one_sku=True), key=_place):
        cause = next((one for one in _causes_of(effect, known)), None)
        if cause is None:
            known = _merged([*known, effect])
        else:
            known[known.index(cause)] = _with_effect(cause, effect)
    return tuple(sorted(known, key=_urgency))


def _place(effect: Fault) -> int:
    """Return the place of an effect among others. What is late comes last: anything may delay jobs."""
    return len(_IN_ORDER) if effect.code in _LATE else _IN_ORDER.index(effect.code)


def _urgency(fault: Fault) -> tuple[bool, bool, bool, int]:
    return fault.recovered_at is not None, fault.code in HOLDS, not fault.is_page, -fault.jobs


def _causes_of(effect: Fault, known: Sequence[Fault]) -> Iterable[Fault]:
    """Yield the faults that explain another one, the most specific first."""
    if effect.recovered_at is not None:
        return
    if effect.code in _LATE:
        own = (one for one in known if _shares(effect, one) and _holds_up(one))
        yield from sorted(own, key=lambda one: -one.jobs)
        yield from (one for one in known if one.code in _DELAYS_ALL)
        return
    for code in _EFFECTS[effect.code]:
        yield from (one for one in known if one.code == code and _shares(effect, one))


def _shares(effect: Fault, cause: Fault) -> bool:
    """Return True if two faults concern the same SKU or the same account, or the effect the whole fleet."""
    if not effect.skus and not effect.about:
        return True
    if effect.skus and cause.skus and not set(effect.skus).isdisjoint(cause.skus):
        return True
    accounts = {effect.about.rpartition(", ")[2], cause.about.rpartition(", ")[2]}
    return bool(effect.about) and len(accounts) == 1


def _holds_up(fault: Fault) -> bool:
    """Return True if a fault holds up jobs of its SKUs, or would if there were some."""
    return fault.recovered_at is None and (fault.jobs > 0 or fault.code in _HOLDS_UP)


def _with_effect(cause: Fault, effect: Fault) -> Fault:
    codes = dict.fromkeys((*cause.effects, effect.code, *effect.effects))
    skus = tuple(dict.fromkeys((*cause.skus, *effect.skus)))
    return replace(cause, skus=skus, jobs=cause.jobs + effect.jobs, effects=tuple(codes))


def _merged(found: Iterable[Fault], *, one_sku: bool = False) -> list[Fault]:
    """Return one fault for each key, or for each key and SKU, in the order of the first ones."""
    groups: dict[tuple[str, tuple[str, ...]], list[Fault]] = {}
    for fault in found:
        groups.setdefault((fault.key, fault.skus if one_sku else ()), []).append(fault)
    return [_one(group) for group in groups.values()]


def _one(group: Sequence[Fault]) -> Fault:
    """Return the fault of faults with one cause. The message is that of most jobs, and the next one."""
    if len(group) == 1:
        return group[0]
    most_first = sorted(group, key=lambda one: -one.jobs)
    messages = tuple(dict.fromkeys(one.message for one in most_first if one.message))
    more = [f"{len(messages) - _MOST_MESSAGES} more"] if len(messages) > _MOST_MESSAGES else []
    recovered = [one.recovered_at for one in group]
    return replace(
        min(most_first, key=_says_most),
        message="; ".join((*messages[:_MOST_MESSAGES], *more)),
        skus=tuple(dict.fromkeys(sku for one in most_first for sku in one.skus)),
        jobs=sum(one.jobs for one in group),
        effects=tuple(dict.fromkeys(code for one in most_first for code in one.effects)),
        recovered_at=None if None in recovered else max(at for at in recovered if at is not None),
    )


def _says_most(fault: Fault) -> int:
    return MACHINES_FAIL.index(CODES[fault.code]) if fault.code in MACHINES_FAIL else 0
