"""Judges an App's webhook by its configuration and by its newest deliveries. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from autoscaler.config.examinations import Check, Outcome, fine, unknown, wrong
from autoscaler.github.apps.permissions import EVENT
from autoscaler.github.inspection import DeliveryFacts, HookFacts
from autoscaler.model.identifiers import Instant
from autoscaler.model.wording import counted, duration

ENOUGH = 0.9
"""The share of deliveries that must get a 2xx. Some fail while the controller restarts."""

_PATH = "/webhook"
_LATE = "jobs are found in GitHub's lists alone, up to a minute later"
_BAD_SIGNATURE = 401
"""The controller's answer to a signature of another secret (server/webhook.py)."""

_SIGNED = (EVENT, "ping")


@dataclass(frozen=True, slots=True)
class OwnWebhook:
    """Where this controller takes webhooks: the file with the secret, and the host of its URL if it is known.

    The host is known if /webhook is on the same listener as everything else: then it is `server.public_url`'s.
    """

    secret_file: str
    host: str | None


def judge_hook(app_id: int, found: HookFacts | None, own: OwnWebhook) -> list[Check]:
    """Judge the configuration of an App's webhook; None is one that is off."""
    name = f"webhook of App {app_id}"
    settings = "in the App's settings, under Webhook"
    if found is None or not found.url:
        fix = f"tick Active {settings}, and write the URL; or set github.webhook: none"
        return [wrong(name, "it is off, and fleet.yaml expects it", _LATE, fix)]
    checks = [_judge_url(f"{name}: URL", found.url, own, settings)]
    if found.content_type == "json":
        checks.append(fine(f"{name}: content type", "json"))
    else:
        fix = f"choose application/json {settings}"
        what = f"it is {found.content_type or 'missing'}, not json"
        checks.append(wrong(f"{name}: content type", what, "the controller cannot read it", fix))
    if found.checks_certificate:
        checks.append(fine(f"{name}: SSL", "GitHub checks the certificate"))
    else:
        why = "another host could read and answer the webhooks"
        fix = f"choose Enable SSL verification {settings}"
        checks.append(wrong(f"{name}: SSL", "GitHub does not check the certificate", why, fix))
    if not found.has_secret:
        why = "the controller refuses webhooks without a signature"
        fix = f"write the secret of {own.secret_file} {settings}"
        checks.append(wrong(f"{name}: secret", "it has none", why, fix))
    return checks


def judge_deliveries(
    app_id: int, found: Sequence[DeliveryFacts], own: OwnWebhook, url: str, now: Instant
) -> list[Check]:
    """Judge the newest deliveries, newest first."""
    name = f"deliveries of App {app_id}"
    if not found:
        return [
            unknown(name, "GitHub lists none of the last three days", "run a job, and look again")
        ]
    good = [one for one in found if 200 <= one.status < 300]
    share = f"{len(good)} of the last {counted(len(found), 'delivery')} got a 2xx"
    secret = _judge_secret(app_id, found, own, now)
    if secret.outcome is Outcome.WRONG:
        checks = [secret]
    elif len(good) >= ENOUGH * len(found):
        checks = [secret, fine(name, share)]
    else:
        status = next(one.status for one in found if one not in good)
        checks = [secret, wrong(name, f"{share}, others {_shown(status)}", _LATE, _fix(url))]
    return [*checks, _judge_last(app_id, found, now)]


def _judge_secret(
    app_id: int, found: Sequence[DeliveryFacts], own: OwnWebhook, now: Instant
) -> Check:
    """Judge the secret by the newest delivery whose signature the controller checked.

    GitHub shows no secret, only asterisks (REST, "Get a webhook configuration for an app"). The controller
    takes other events than these without a look at their signature.
    """
    name = f"secret of App {app_id}"
    checked = (one for one in found if one.event in _SIGNED)
    newest = next(
        (one for one in checked if one.status == _BAD_SIGNATURE or one.status // 100 == 2), None
    )
    if newest is None:
        return unknown(
            name, "the controller answered no signed delivery", "run a job, and look again"
        )
    ago = duration(max(0.0, now - newest.at))
    if newest.status == _BAD_SIGNATURE:
        what = f"the controller refused the signature of the newest {newest.event}, {ago} ago (401)"
        fix = f"write the secret of the App's webhook into {own.secret_file}, and reload; then redeliver it"
        return wrong(name, what, _LATE, fix)
    return fine(name, f"the controller accepted the signature of a {newest.event}, {ago} ago")


def _judge_last(app_id: int, found: Sequence[DeliveryFacts], now: Instant) -> Check:
    """Say when GitHub sent the last event about a job."""
    last = next((one for one in found if one.event == EVENT), None)
    if last is None:
        what = f"no {EVENT} among the last {len(found)}"
        return unknown(f"last {EVENT} of App {app_id}", what, "run a job, and look again")
    ago = duration(max(0.0, now - last.at))
    return fine(f"last {EVENT} of App {app_id}", f"{ago} ago, {_shown(last.status)}")


def _judge_url(name: str, url: str, own: OwnWebhook, settings: str) -> Check:
    parts = urlsplit(url)
    wanted = f"https://{own.host or 'HOST'}{_PATH}"
    fix = f"write {wanted} {settings}"
    if parts.scheme != "https":
        return wrong(name, f"{url} is not https", "anyone on the way can read the webhooks", fix)
    if not parts.path.endswith(_PATH):
        return wrong(name, f"{url} does not end with {_PATH}", _LATE, fix)
    if own.host is not None and parts.hostname != own.host:
        what = f"{url} leads to another host than server.public_url"
        return wrong(name, what, _LATE, fix)
    return fine(name, url)


def _shown(status: int) -> str:
    return f"got {status}" if status else "got no answer"


def _fix(url: str) -> str:
    return f"curl -i {url} from outside: it must reach the controller's listener"
