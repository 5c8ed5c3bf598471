"""Addresses: of pages at GitHub, and of the console's own pages."""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class GitHubPages:
    """Pages of GitHub's web interface. `base` is `https://github.com`, or that of an Enterprise Server."""

    base: str

    @classmethod
    def of_api(cls, api_url: str) -> "GitHubPages":
        """Return the pages that belong to a REST API.

        The API is `https://api.github.com`, `https://api.SUBDOMAIN.ghe.com`, or `https://HOST/api/v3` on an
        Enterprise Server (docs.github.com: getting started with the REST API).
        """
        scheme, _, rest = api_url.rstrip("/").partition("://")
        host, slash, path = rest.partition("/")
        return cls(
            f"{scheme}://{host if slash and path == 'api/v3' else host.removeprefix('api.')}"
        )

    def repository(self, repository: str) -> str:
        """Return the page of `owner/name`."""
        return f"{self.base}/{quote(repository)}"

    def job(self, repository: str, run_id: int | None, job: int) -> str:
        """Return the page of a job, or of its repository's runs if its run is not known."""
        actions = f"{self.repository(repository)}/actions"
        return f"{actions}/runs/{run_id}/job/{job}" if run_id is not None else actions

    def run(self, repository: str, run_id: int, attempt: int) -> str:
        """Return the page of a workflow run's attempt."""
        return f"{self.repository(repository)}/actions/runs/{run_id}/attempts/{attempt}"

    def commit(self, repository: str, sha: str) -> str:
        """Return the page of a commit."""
        return f"{self.repository(repository)}/commit/{quote(sha)}"
