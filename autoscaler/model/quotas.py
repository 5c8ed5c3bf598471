"""Where the limits of a provider's account are known from."""

from enum import StrEnum


class QuotaSource(StrEnum):
    """Where a quota comes from: the operator, the provider, the store; or no limit is known."""

    CONFIGURED = "configured"
    API = "api"
    CACHE = "cache"
    UNKNOWN = "unknown"
