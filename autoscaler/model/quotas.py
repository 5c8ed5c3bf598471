"""The sources of a provider account's quotas."""

from enum import StrEnum


class QuotaSource(StrEnum):
    """Where a quota comes from: the operator, the provider or the store; `unknown` if none is known."""

    CONFIGURED = "configured"
    API = "api"
    CACHE = "cache"
    UNKNOWN = "unknown"
