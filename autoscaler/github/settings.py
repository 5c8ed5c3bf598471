"""The settings of the GitHub client: the API's URL, the Apps and the bounds."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from autoscaler.model.identifiers import Seconds

MAX_CONCURRENCY = 100
"""GitHub's limit of concurrent requests (docs.github.com: REST API rate limits)."""

PUBLISHED_POINTS = 900
"""GitHub's limit of points a minute for one endpoint (docs.github.com: REST API rate limits)."""


@dataclass(frozen=True, slots=True)
class AppKey:
    """A GitHub App: its id, and its RSA private key in PEM format, which is a secret."""

    id: int
    private_key_pem: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class GitHubSettings:
    """`api_url` is https://api.github.com, or `https://HOST/api/v3` of an Enterprise Server.

    All of `apps` that are installed on an account share its requests. `webhooks`: GitHub sends the Apps'
    webhooks to this controller, which asks for redelivery of failed ones. `timeout` (seconds of real time)
    limits one request; `concurrency` limits the requests in flight.
    Raises ValueError if a setting is invalid.
    """

    api_url: str
    apps: tuple[AppKey, ...]
    webhooks: bool = True
    requester: str = "gpu-runner-autoscaler"
    timeout: Seconds = 20.0
    concurrency: int = 80

    @property
    def points_per_minute(self) -> int | None:
        """The secondary limit to keep, or None. An Enterprise Server has none by default.

        If its administrator sets one, the controller reacts to the server's 403 and 429 answers
        (docs.github.com: REST API rate limits of Enterprise Server).
        """
        host = urlsplit(self.api_url).hostname or ""
        cloud = host == "github.com" or host.endswith((".github.com", ".ghe.com"))
        return PUBLISHED_POINTS if cloud else None

    def __post_init__(self) -> None:
        if not self.api_url.startswith(("https://", "http://")):
            raise ValueError("api_url: not an http or https URL")
        if not self.apps:
            raise ValueError("apps: is empty; name at least one App")
        if not 1 <= self.concurrency <= MAX_CONCURRENCY:
            raise ValueError(f"concurrency: not a number from 1 to {MAX_CONCURRENCY}")
        if self.timeout <= 0:
            raise ValueError("timeout: not above 0 seconds")
