"""What the GitHub edge is given: where GitHub is and as which Apps to speak to it. Values only."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from autoscaler.model.identifiers import Seconds

MAX_CONCURRENCY = 100
"""GitHub's bound on concurrent requests (docs.github.com: REST API rate limits)."""

PUBLISHED_POINTS = 900
"""GitHub's bound on one endpoint's points a minute (docs.github.com: REST API rate limits)."""


@dataclass(frozen=True, slots=True)
class AppKey:
    """A GitHub App: its id and its RSA private key as PEM text, a secret."""

    id: int
    private_key_pem: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class GitHubSettings:
    """`api_url` is https://api.github.com, or a GHES's `https://ghe.example.com/api/v3`.

    Those of `apps` that are installed on an account share its work. `timeout` (seconds, of real
    time) bounds one request; `concurrency` the requests under way at once.
    Raises ValueError on settings that cannot work.
    """

    api_url: str
    apps: tuple[AppKey, ...]
    requester: str = "gpu-runner-autoscaler"
    timeout: Seconds = 20.0
    concurrency: int = 80

    @property
    def points_per_minute(self) -> int | None:
        """The secondary limit to keep to. A GHES has none unless its administrator sets one.

        What an administrator set is learned from refusals (docs.github.com: REST API rate limits
        of Enterprise Server).
        """
        host = urlsplit(self.api_url).hostname or ""
        cloud = host == "github.com" or host.endswith((".github.com", ".ghe.com"))
        return PUBLISHED_POINTS if cloud else None

    def __post_init__(self) -> None:
        if not self.api_url.startswith(("https://", "http://")):
            raise ValueError("api_url: not an http(s) URL")
        if not self.apps:
            raise ValueError("apps: at least one is needed")
        if not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency: not within 1 and {MAX_CONCURRENCY}")
        if self.timeout <= 0:
            raise ValueError("timeout: not above 0")
