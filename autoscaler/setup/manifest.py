"""The GitHub App that a fleet needs: its manifest, and the addresses of GitHub's pages about it. Pure.

Source: docs.github.com, "Registering a GitHub App from a manifest", and "... using URL parameters".
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from autoscaler.github.apps.permissions import EVENT

LONGEST_NAME = 34
"""Characters of an App's name (docs.github.com, "Registering a GitHub App")."""


@dataclass(frozen=True, slots=True)
class AppPlan:
    """The App to create. `owner` is an organization, or with `personal` the user who creates it.

    `pages` is the URL of GitHub's pages. `webhook` is the URL of /webhook, or None.
    """

    name: str
    pages: str
    owner: str
    personal: bool
    permissions: Mapping[str, str]
    webhook: str | None = None

    @property
    def settings(self) -> str:
        """The address of the owner's Apps."""
        owner = "" if self.personal else f"/organizations/{quote(self.owner)}"
        return f"{self.pages}{owner}/settings/apps"

    @property
    def homepage(self) -> str:
        """The App's `url`, which GitHub requires and shows: the owner's page."""
        return f"{self.pages}/{quote(self.owner)}"

    def form_address(self, state: str) -> str:
        """Return the address to which a browser posts the manifest."""
        return f"{self.settings}/new?{urlencode({'state': state})}"

    def manifest(self, redirect_url: str) -> str:
        """Return the JSON for the field `manifest`.

        GitHub accepts events only with a webhook, and a webhook only with a URL: one that is off gets the
        homepage's, until `init --webhook` sets another.
        """
        hook = {"url": self.webhook or self.homepage, "active": self.webhook is not None}
        return json.dumps(
            {
                "name": self.name,
                "url": self.homepage,
                "hook_attributes": hook,
                "redirect_url": redirect_url,
                "public": False,
                "default_permissions": dict(self.permissions),
                "default_events": [EVENT],
            }
        )

    @property
    def by_hand(self) -> str:
        """The address of GitHub's form with the same values, for a browser that cannot come back here."""
        hook = {"webhook_active": "true" if self.webhook else "false"}
        if self.webhook:
            hook["webhook_url"] = self.webhook
        values = {
            "name": self.name,
            "url": self.homepage,
            "public": "false",
            **hook,
            "events[]": EVENT,
            **self.permissions,
        }
        return f"{self.settings}/new?{urlencode(values)}"
