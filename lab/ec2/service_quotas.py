"""Answers Service Quotas' API for the lab's quotas, in AWS JSON."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from lab.ec2.quotas import QUOTAS, Quota, Quotas

SERVICE = "servicequotas"
CONTENT_TYPE = "application/x-amz-json-1.1"
MOST_IN_A_PAGE = 100
_PREFIX = "ServiceQuotasV20190624."


class _RefusedError(Exception):
    """The request is answered with an error of this name."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}")
        self.name = name
        self.message = message


class ServiceQuotas:
    """Service Quotas for one account in one region."""

    def __init__(self, quotas: Quotas, account: str, region: str) -> None:
        self._quotas = quotas
        self._account = account
        self._region = region
        self._handlers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "GetServiceQuota": self._get,
            "ListServiceQuotas": self._list,
        }

    def answer(self, target: str, body: bytes) -> tuple[int, str]:
        """Return the HTTP status and body for a request with this X-Amz-Target."""
        try:
            return 200, json.dumps(self._handler(target)(_read(body)))
        except _RefusedError as error:
            return 400, json.dumps({"__type": error.name, "Message": error.message})

    def _handler(self, target: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
        handler = self._handlers.get(target.removeprefix(_PREFIX))
        if handler is None:
            raise _RefusedError("UnknownOperationException", f"The lab does not do {target[:80]}")
        if self._quotas.denied:
            action = target.removeprefix(_PREFIX)
            text = f"User is not authorized to perform: servicequotas:{action}"
            raise _RefusedError("AccessDeniedException", text)
        return handler

    def _get(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        for quota in QUOTAS:
            if quota.code == asked.get("QuotaCode"):
                return {"Quota": self._shown(quota)}
        raise _RefusedError("NoSuchResourceException", "The account has no such quota")

    def _list(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        size, token = asked.get("MaxResults", MOST_IN_A_PAGE), asked.get("NextToken", "0")
        if not isinstance(size, int) or not 1 <= size <= MOST_IN_A_PAGE:
            raise _RefusedError("IllegalArgumentException", "MaxResults must be from 1 to 100")
        if not isinstance(token, str) or not token.isdecimal() or int(token[:6]) >= len(QUOTAS):
            raise _RefusedError("InvalidPaginationTokenException", "The token is not valid")
        end = int(token) + size
        page = [self._shown(quota) for quota in QUOTAS[int(token) : end]]
        return {"Quotas": page} | ({"NextToken": str(end)} if end < len(QUOTAS) else {})

    def _shown(self, quota: Quota) -> dict[str, Any]:
        arn = f"arn:aws:servicequotas:{self._region}:{self._account}:ec2/{quota.code}"
        return {
            "ServiceCode": "ec2",
            "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "QuotaArn": arn,
            "QuotaCode": quota.code,
            "QuotaName": quota.name,
            "Value": float(self._quotas.value(quota.code)),
            "Unit": "None",
            "Adjustable": True,
            "GlobalQuota": False,
        }


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        asked = json.loads(body or b"{}")
    except ValueError as error:
        raise _RefusedError("SerializationException", "The body is not JSON") from error
    if not isinstance(asked, dict):
        raise _RefusedError("SerializationException", "The body is not an object")
    if asked.get("ServiceCode") != "ec2":
        raise _RefusedError("NoSuchResourceException", "The lab has quotas of ec2 only")
    return asked
