"""Asks AWS what `autoscaler doctor` judges, with the credentials and the endpoints of the environment.

Creates and changes nothing: it reads, or sends what would change something with `DryRun` (EC2 API Reference,
"Common query parameters": the error DryRunOperation means that the permission exists).
"""

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from autoscaler.model.identifiers import Seconds

DRY_RUN = "DryRunOperation"

_MAX_TEXT = 300


class AwsRefusedError(Exception):
    """AWS refused a call, with this `code`."""

    def __init__(self, api: str, code: str, message: str) -> None:
        super().__init__(f"{api}: {code}: {message[:_MAX_TEXT]}")
        self.code = code


class AwsNotAskedError(Exception):
    """A call got no answer, or there are no credentials to sign it with."""


class Account:
    """One region of the account. Each call is sent once, in a thread, and ends within seconds.

    Every call raises AwsRefusedError or AwsNotAskedError.
    """

    def __init__(self, region: str, within: Seconds) -> None:
        """A call ends after half of `within` seconds, so that an examination can judge it."""
        self.region = region
        self._settings = Config(
            connect_timeout=within / 8,
            read_timeout=within / 3,
            retries={"total_max_attempts": 1},
        )
        self._lock = threading.Lock()
        self._clients: dict[tuple[str, str], Any] = {}

    async def call(
        self, api: str, service: str = "ec2", region: str | None = None, **parameters: Any
    ) -> Any:
        """Return AWS's answer."""
        return await asyncio.to_thread(self._call, api, service, region or self.region, parameters)

    async def refusal(self, api: str, **parameters: Any) -> str | None:
        """Return None if EC2 would carry out a call, or the code of its refusal."""
        try:
            await self.call(api, DryRun=True, **parameters)
        except AwsRefusedError as error:
            return None if error.code == DRY_RUN else error.code
        return None  # an endpoint that ignores DryRun of a read

    def _call(self, api: str, service: str, region: str, parameters: Mapping[str, Any]) -> Any:
        try:
            return getattr(self._client(service, region), xform_name(api))(**parameters)
        except ClientError as error:
            said = error.response["Error"]
            raise AwsRefusedError(api, said.get("Code", ""), said.get("Message", "")) from None
        except BotoCoreError as error:
            raise AwsNotAskedError(f"{api}: {error}"[:_MAX_TEXT]) from None

    def _client(self, service: str, region: str) -> Any:
        # Sessions are not thread-safe, clients are (boto3 documentation, "Multithreading").
        with self._lock:
            if (service, region) not in self._clients:
                session = boto3.Session(region_name=region)
                # The stubs want literal names of services.
                make: Any = session.client
                self._clients[service, region] = make(service, config=self._settings)
            return self._clients[service, region]
