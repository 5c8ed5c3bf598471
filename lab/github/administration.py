"""What owners and operators change: installations, groups, limits, the length of lists."""

from collections.abc import Mapping

from autoscaler.controller.ports.clock import Clock
from lab.github.credentials import Credentials, Installation
from lab.github.deliveries import Delivery, Message
from lab.github.directory import Directory
from lab.github.gateway import CORE, LONGEST_PAGE, REGISTRATION, Gateway
from lab.github.records import RegisteredApp
from lab.github.settings import LabRunnerGroup, Limits
from lab.github.webhooks import Webhook


class Administration:
    """Changes the lab's GitHub while it serves. Raises KeyError for unknown organizations."""

    def __init__(
        self,
        directory: Directory,
        credentials: Credentials,
        gateway: Gateway,
        webhooks: Mapping[int, Webhook],
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._credentials = credentials
        self._gateway = gateway
        self._webhooks = webhooks
        self._clock = clock

    def install(self, app_id: int, login: str, number: int | None = None) -> None:
        """Install an App on an organization, with this installation ID or a new one."""
        self._directory.install(app_id, login, number)

    def uninstall(self, app_id: int, login: str) -> None:
        """Remove an App's installation and revoke its tokens. Raises KeyError if there is none."""
        self._credentials.revoke(self._directory.uninstall(app_id, login))

    def suspend(self, app_id: int, login: str) -> None:
        """Suspend an App's installation: it gets no tokens, and its tokens are revoked."""
        found = self._installation(app_id, login)
        self._directory.suspended[found.id] = self._clock.now()
        self._credentials.revoke(found)

    def accept(self, app_id: int, login: str, permissions: Mapping[str, str]) -> None:
        """Show these permissions as those that an installation's owner accepted. Routes do not heed them."""
        self._directory.accepted[self._installation(app_id, login).id] = permissions

    def app(self, app_id: int) -> RegisteredApp:
        """Return an App's record, which a test may change: its permissions, its events, its webhook."""
        return self._directory.apps[app_id]

    def delete_app(self, app_id: int) -> None:
        """Refuse an App's JWTs from now on. Its tokens stay valid until they expire."""
        self._credentials.forget_app(app_id)

    def lengthen_tokens(self, length: int) -> None:
        """Issue installation tokens of this many characters from now on."""
        self._credentials.token_length = length

    def revoke_tokens(self) -> None:
        """Revoke the tokens of all installations."""
        self._credentials.revoke(None)

    def create_repository(self, full_name: str) -> None:
        """Create a repository now. Raises ValueError for an unknown owner or a name that exists."""
        owner, _, name = full_name.partition("/")
        self._directory.create_repository(owner, name, self._clock.now())

    def replace_groups(self, login: str, *groups: LabRunnerGroup) -> None:
        """Replace an organization's runner groups, except the default one."""
        self._directory.replace_groups(login, groups)

    def limit(self, limits: Limits | None) -> None:
        """Replace the limits and fill all buckets; None removes the limits."""
        self._gateway.limits.set(limits)

    def leave_registrations(self, installation: int, remaining: int) -> None:
        """Leave an installation so many registrations until the reset. Raises RuntimeError without limits."""
        caller, now = f"installation {installation}", self._clock.now()
        self._gateway.limits.leave_over(caller, REGISTRATION, remaining, now)

    def leave_requests(self, remaining: int) -> None:
        """Leave each installation so many requests until the reset. Raises RuntimeError without limits."""
        for one in self._directory.installations.values():
            caller = f"installation {one.id}"
            self._gateway.limits.leave_over(caller, CORE, remaining, self._clock.now())

    def shape_lists(self, longest_page: int = LONGEST_PAGE, *, filters_names: bool = True) -> None:
        """Set the length of a page, and whether lists of runners heed the parameter `name`."""
        self._gateway.longest_page = longest_page
        self._gateway.filters_names = filters_names

    def log_delivery(self, app_id: int, guid: str, at: float, *, redelivery: bool) -> Delivery:
        """Add a pending delivery of a job's event to an App's log, after all others, and return its record."""
        message = Message(guid, "workflow_job", "queued", None, None, (b"{}",))
        return self._webhooks[app_id].log.add(message, at, redelivery=redelivery)

    def _installation(self, app_id: int, login: str) -> Installation:
        organization = self._directory.organizations[login.lower()]
        return self._directory.installations[app_id, organization.login]
