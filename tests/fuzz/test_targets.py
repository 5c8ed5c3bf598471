"""Runs each fuzzer 1,000 or 10,000 times, and checks that each finds a planted hole."""

import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from asn1crypto import cms
from cryptography import x509

from autoscaler.controller.machines.attestation import Attestations
from autoscaler.controller.machines.bootstrap import BootstrapService
from autoscaler.controller.ports.capabilities import Notice
from autoscaler.controller.ports.provider import ProvenIdentity
from autoscaler.controller.ports.store import Delivery, Store
from autoscaler.github.webhook import parse_workflow_job
from autoscaler.model import events as e
from autoscaler.model.events import JobObserved
from autoscaler.model.identifiers import Instant, MachineId, ProviderMachineId, RunnerName
from autoscaler.model.machines.interruptions import NoticeKind
from autoscaler.model.machines.machine import ExitReason, Machine
from autoscaler.providers.ec2.identity.documents import IdentityVerifier
from autoscaler.providers.ec2.notices.events import parse_notice
from autoscaler.setup.app_page import AppPage
from tests.fuzz import bootstrap_world, documents, webhook_target
from tests.fuzz.app_page_target import AppPageTarget
from tests.fuzz.bootstrap_target import BootstrapTarget
from tests.fuzz.identity_target import IdentityTarget
from tests.fuzz.notice_target import NoticeTarget
from tests.fuzz.target import Target, try_chunk, try_many
from tests.fuzz.targets import TARGETS
from tests.fuzz.webhook_target import WebhookTarget, accept, verify_live
from tests.providers.documents import REGION

SEED = 20261121
TRIES = 10_000


def first_finding(target: Target, tries: int = TRIES) -> str:
    """What the fuzzer finds first within so many tries."""
    try:
        for tried in try_many(target, SEED, tries):
            if tried.findings:
                return tried.findings[0].why
    finally:
        target.close()
    return "nothing"


@pytest.mark.parametrize("name", TARGETS)
def test_a_thousand_unsigned_inputs_are_refused_without_a_crash(name: str) -> None:
    assert first_finding(TARGETS[name](), 1_000) == "nothing"


@pytest.mark.systems
@pytest.mark.case(
    "random and mutated deliveries, bootstrap requests and identity documents",
    topic="Hostile input",
    source="CWE-20",
)
@pytest.mark.parametrize("name", TARGETS)
def test_unsigned_input_is_refused_without_a_crash(name: str) -> None:
    assert first_finding(TARGETS[name]()) == "nothing"


@pytest.mark.parametrize("name", TARGETS)
def test_a_chunk_is_the_same_whenever_it_is_drawn(name: str) -> None:
    target = TARGETS[name]()
    draws = [[target.draw(Random(7)) for _ in range(20)] for _ in range(2)]
    assert draws[0] == draws[1]
    assert try_chunk(target, 1, 2, 30) == try_chunk(target, 1, 2, 30)
    target.close()


# --- holes in the reader of identity documents -------------------------------------------------


def believes_embedded_certificates(proof: bytes, account: str) -> ProvenIdentity:
    """As `openssl smime -verify -noverify` does without `-nointern`."""
    pinned = list(documents.PINNED)
    try:
        data = cms.ContentInfo.load(proof)["content"]
        pinned += [x509.load_der_x509_certificate(c.dump()) for c in data["certificates"]]
    except (ValueError, TypeError, KeyError, AttributeError):
        pinned = list(documents.PINNED)
    return IdentityVerifier(REGION, pinned).verify(proof, account)


def checks_no_signature(proof: bytes, account: str) -> ProvenIdentity:
    """Reads the content without checking who signed it."""
    content = proof[proof.find(b"{") :]
    start = content.find(b'"instanceId": "') + 15
    if start < 15:
        return IdentityVerifier(REGION, documents.PINNED).verify(proof, account)
    name = content[start : start + 19].decode("latin-1")
    return ProvenIdentity(ProviderMachineId(name), "ami-1", "")


def gives_up_on_odd_bytes(proof: bytes, account: str) -> ProvenIdentity:
    """Raises an undeclared error."""
    if proof[-1:] == b"{":
        proof.decode("ascii")
    return IdentityVerifier(REGION, documents.PINNED).verify(proof, account)


@pytest.mark.case(
    "an identity document signed by a certificate of the attacker's inside it",
    topic="Hostile input",
    source="EC2: instance identity documents; openssl-smime",
)
@pytest.mark.parametrize(
    ("verify", "found"),
    [
        (believes_embedded_certificates, "an identity was believed that was never signed"),
        (checks_no_signature, "an identity was believed that was never signed"),
        (gives_up_on_odd_bytes, "verify crashed: UnicodeDecodeError"),
    ],
)
def test_a_planted_hole_in_the_identity_reader_is_found(
    verify: Callable[[bytes, str], ProvenIdentity], found: str
) -> None:
    assert first_finding(IdentityTarget(verify)).startswith(found)


# --- holes in the webhook ----------------------------------------------------------------------


def skips_empty_bodies(body: bytes, header: str | None) -> bool:
    return not body or verify_live(body, header)


def takes_sha1_too(body: bytes, header: str | None) -> bool:
    given = (header or "").removeprefix("sha256=").removeprefix("sha1=")
    wanted = hmac.new(webhook_target.SECRETS[0], body, hashlib.sha1).hexdigest()
    return hmac.compare_digest(given.encode(), wanted.encode()) or verify_live(body, header)


def compares_a_prefix(body: bytes, header: str | None) -> bool:
    wanted = hmac.new(webhook_target.SECRETS[0], body, hashlib.sha256).hexdigest()
    given = (header or "").removeprefix("sha256=")
    return verify_live(body, header) or (len(given) > 4 and wanted.startswith(given))


def signs_without_the_last_byte(body: bytes, header: str | None) -> bool:
    return verify_live(body, header) or verify_live(body[:-1], header)


def reads_deeply(body: bytes, received_at: Instant) -> JobObserved | None:
    """A recursive parser of brackets."""

    def walk(at: int) -> int:
        return walk(at + 1) if body[at : at + 1] == b"[" and at < 400 else at

    if walk(0) == 400:
        raise MemoryError
    return parse_workflow_job(body, received_at)


class KnowsIdsOnly:
    """Deduplicates by the id, which is not signed: the first delivery with an id blocks the second."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    async def __call__(self, store: Store, delivery: Delivery) -> bool:
        if delivery.id in self._known:
            return False
        self._known.add(delivery.id)
        return await accept(store, delivery)


async def forgets_to_store(store: Store, delivery: Delivery) -> bool:
    return len(delivery.body) % 7 == 0 or await accept(store, delivery)


@pytest.mark.parametrize(
    ("hole", "found"),
    [
        ({"verify": skips_empty_bodies}, "though GitHub did not sign it"),
        ({"verify": takes_sha1_too}, "though GitHub did not sign it"),
        ({"verify": compares_a_prefix}, "though GitHub did not sign it"),
        ({"verify": signs_without_the_last_byte}, "though GitHub did not sign it"),
        ({"parse": reads_deeply}, "process_delivery crashed: MemoryError"),
        ({"accept": KnowsIdsOnly()}, "and the store has no such delivery"),
        ({"accept": forgets_to_store}, "and the store has no such delivery"),
    ],
)
def test_a_planted_hole_in_the_webhook_is_found(hole: dict[str, Any], found: str) -> None:
    assert found in first_finding(WebhookTarget(webhook_target.Parts(**hole)))


# --- holes in the parsers of notices ------------------------------------------------------------


def believes_any_name(body: str) -> Notice | None:
    """Accepts any value in place of the id."""
    notice = parse_notice(body)
    if notice is None or notice.kind is NoticeKind.SCHEDULED_CHANGE:
        return notice
    return replace(notice, machines=(json.loads(body)["detail"]["instance-id"][:3],))


def reads_with_pythons_json(body: str) -> Notice | None:
    """A recursive parser that raises its own error."""
    json.loads(body)
    return parse_notice(body)


@pytest.mark.parametrize(
    ("parse", "found"),
    [
        (believes_any_name, "a machine was named that can be none"),
        (reads_with_pythons_json, "the parser crashed"),
    ],
)
def test_a_planted_hole_in_the_notice_parsers_is_found(
    parse: Callable[[str], Notice | None], found: str
) -> None:
    assert first_finding(NoticeTarget(parse)).startswith(found)


# --- holes in the page of `autoscaler init` -------------------------------------------------------


class TakesAnEmptyState(AppPage):
    def _is_ours(self, state: str) -> bool:
        return not state or super()._is_ours(state)


class ComparesText(AppPage):
    def _is_ours(self, state: str) -> bool:
        return hmac.compare_digest(state, self.state)  # raises for letters beyond ASCII


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (TakesAnEmptyState, "a code was exchanged without this run's state"),
        (ComparesText, "the page crashed: TypeError"),
    ],
)
def test_a_planted_hole_in_the_app_page_is_found(kind: type[AppPage], found: str) -> None:
    assert first_finding(AppPageTarget(kind)).startswith(found)


# --- holes in the bootstrap service ---------------------------------------------------------------


class BelievesAnyNonce(BootstrapService):
    def _authenticated(self, machine: MachineId, nonce: str, *, over: bool = False) -> Machine:
        found = self._journal.ledger.state.machines.get(machine)
        return found if found is not None else super()._authenticated(machine, nonce, over=over)


class AcceptsAnyExit(BootstrapService):
    def authenticate(self, machine: MachineId, nonce: str) -> None:
        """Accept any."""

    async def exited(
        self,
        machine: MachineId,
        nonce: str,
        detail: str,
        reason: ExitReason = ExitReason.UNKNOWN,
    ) -> None:
        if machine in self._journal.ledger.state.machines:
            await self._journal.record(e.MachineExited(self._journal.now, machine, detail, reason))


class AcceptsAssignedMachines(Attestations):
    def _compare(self, machine: Machine, identity: ProvenIdentity) -> None:
        if not machine.work.may_run_job:
            super()._compare(machine, identity)


class AttestsAsTheAssigned(BootstrapService):
    def __init__(self, *ports: Any, **more: Any) -> None:
        super().__init__(*ports, **more)
        real = self._attestations
        self._attestations = AcceptsAssignedMachines(
            real._journal, real._providers, real._list_now, real._opened
        )


class AcknowledgesForOthers(BootstrapService):
    async def acknowledge(self, machine: MachineId, nonce: str, runner: RunnerName) -> None:
        self._authenticated(machine, nonce)
        for other in tuple(self._journal.ledger.state.runners.values()):
            if other.machine != machine and other.configuration_sent_at is not None:
                await self._journal.record(e.RunnerListening(self._journal.now, other.name))


class CrashesOnStrangers(BootstrapService):
    def authenticate(self, machine: MachineId, nonce: str) -> None:
        """Accept any."""

    async def heartbeat(self, machine: MachineId, nonce: str) -> None:
        del nonce  # the record is looked up before a check whether there is one
        await super().heartbeat(self._journal.ledger.state.machines[machine].id, "")


@pytest.mark.case(
    "a job reads the identity document, or repeats its machine's requests",
    topic="Hostile input",
    source="EC2: instance identity documents",
)
@pytest.mark.parametrize(
    ("hole", "found"),
    [
        ({"service": BelievesAnyNonce}, "changed without its own word"),
        ({"service": AcceptsAnyExit}, "to a stranger"),
        ({"service": AttestsAsTheAssigned}, "which was assigned before"),
        ({"service": AcknowledgesForOthers}, "changed without its"),
        ({"service": CrashesOnStrangers}, "crashed: KeyError"),
        ({"verify": believes_embedded_certificates}, "which its proof does not prove"),
    ],
)
def test_a_planted_hole_in_the_bootstrap_protocol_is_found(
    hole: dict[str, Any], found: str
) -> None:
    assert found in first_finding(BootstrapTarget(bootstrap_world.Parts(**hole)))
