"""Every target by its name; imported only when it is used, for each brings much along."""

from collections.abc import Callable

from tests.fuzz.target import Target


def _webhook() -> Target:
    from tests.fuzz.webhook_target import WebhookTarget

    return WebhookTarget()


def _bootstrap() -> Target:
    from tests.fuzz.bootstrap_target import BootstrapTarget

    return BootstrapTarget()


def _identity() -> Target:
    from tests.fuzz.identity_target import IdentityTarget

    return IdentityTarget()


def _notice() -> Target:
    from tests.fuzz.notice_target import NoticeTarget

    return NoticeTarget()


def _app_page() -> Target:
    from tests.fuzz.app_page_target import AppPageTarget

    return AppPageTarget()


TARGETS: dict[str, Callable[[], Target]] = {
    "webhook": _webhook,
    "bootstrap": _bootstrap,
    "identity": _identity,
    "notice": _notice,
    "app_page": _app_page,
}
