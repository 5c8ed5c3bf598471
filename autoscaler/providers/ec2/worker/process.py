"""The worker process: runs boto3, whose parsing would block the controller's event loop.

Reads calls from standard input, one JSON object in each line. Makes each call once, several at the same
time, and writes each answer as a line to standard output. Ends when standard input ends, also if the
controller was killed. Ignores signals, so that it does not end before the controller.
"""

import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, BinaryIO

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import ClientError

from autoscaler.providers.ec2.instance_types import pricing_region
from autoscaler.providers.ec2.worker.operations import OPERATIONS, Arguments
from autoscaler.providers.ec2.worker.rows import MAX_TEXT
from autoscaler.providers.ec2.worker.sent_requests import SentRequests


class Clients:
    """The AWS clients by service, created on first use. Each can be used from several threads."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: dict[str, Any] = {}

    def call(self, name: str, arguments: Arguments) -> object:
        """Send one request of the operation `name`; return what it keeps of the answer."""
        operation = OPERATIONS[name]
        parameters = operation.parameters(arguments)
        if "page" in arguments:
            parameters["MaxResults"] = arguments.get("size", operation.page_size)
            if arguments["page"]:
                parameters["NextToken"] = arguments["page"]
        answer = getattr(self._client(operation.service), xform_name(name))(**parameters)
        result = operation.result(answer, arguments)
        return (result, answer.get("NextToken")) if operation.page_size else result

    def _client(self, service: str) -> Any:
        with self._lock:
            if service not in self._made:
                self._made[service] = self._make(service)
            return self._made[service]


def main(setup: Mapping[str, Any]) -> None:
    """Serve until standard input ends. `setup` is the JSON object that the channel gives."""
    # A service manager may signal all processes, and the controller still needs the worker.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    keep_metadata_direct(os.environ)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # so that a print of a library does not come between the answers
    _serve(sys.stdin.buffer, answers, setup)
    # Nothing reads the answers of calls that are still in flight.
    os._exit(0)


def _serve(calls: BinaryIO, answers: BinaryIO, setup: Mapping[str, Any]) -> None:
    sent_requests = SentRequests()
    # All clients share one session, because each session reads boto3's endpoints and the credentials.
    # A session must not create two clients at once; `Clients` creates one at a time.
    session = cache(boto3.session.Session)
    clients = Clients(lambda service: sent_requests.watch(_client(session(), setup, service)))
    lock = threading.Lock()

    def run(call: Mapping[str, Any]) -> None:
        line = (
            json.dumps({"id": call["id"]} | answer(clients, sent_requests, call)).encode() + b"\n"
        )
        with lock:
            answers.write(line)
            answers.flush()

    pool = ThreadPoolExecutor(max_workers=setup["threads"])
    for line in calls:
        # The controller may be killed within a line.
        if line.endswith(b"\n"):
            pool.submit(run, json.loads(line))


def _client(session: boto3.session.Session, setup: Mapping[str, Any], service: str) -> Any:
    config = Config(
        region_name=pricing_region(setup["region"]) if service == "pricing" else setup["region"],
        connect_timeout=setup["connect"],
        read_timeout=setup["read"],
        # One attempt: boto3 must not repeat a request that launches or terminates machines.
        retries={"mode": "standard", "total_max_attempts": 1},
        max_pool_connections=setup["threads"],
    )
    return session.client(service, config=config, endpoint_url=setup["endpoint_url"])  # type: ignore[call-overload]


def answer(
    clients: Clients, sent_requests: SentRequests, call: Mapping[str, Any]
) -> dict[str, object]:
    """Make one call. Return `{"result"}`, or `{"error"}` with its code, message and `sent`."""
    sent_requests.begin(call.get("until", math.inf))
    try:
        return {"result": clients.call(call["operation"], call["arguments"])}
    except ClientError as error:
        # The error may be from another service before the call: STS, for a role's credentials.
        return _refusal(error, sent=sent_requests.may_have_arrived(error))
    except Exception as error:  # noqa: BLE001 - the process boundary: every call gets an answer
        # A timeout, a broken connection, an unreadable answer: AWS may have carried the call out.
        sent = sent_requests.may_have_arrived(error)
        return _error(type(error).__name__, str(error), sent=sent)


def _refusal(error: ClientError, *, sent: bool) -> dict[str, object]:
    details = error.response.get("Error", {})
    metadata = error.response.get("ResponseMetadata", {})
    message = str(details.get("Message", "")) if sent else str(error)
    refusal = _error(str(details.get("Code", "")), message, sent=sent)
    refusal["status"] = metadata.get("HTTPStatusCode", 0)
    refusal["retry_after"] = metadata.get("HTTPHeaders", {}).get("retry-after")
    return refusal


def _error(code: str, message: str, *, sent: bool) -> dict[str, object]:
    return {"error": code, "message": message[:MAX_TEXT], "sent": sent, "status": 0}


NEVER_PROXIED = ("169.254.169.254", "[fd00:ec2::254]", "169.254.170.2", "169.254.170.23")
"""EC2's metadata service, those of ECS and of EKS pod identities (AWS SDKs reference guide)."""


def keep_metadata_direct(environment: MutableMapping[str, str]) -> None:
    """Add the metadata services to NO_PROXY.

    boto3 uses HTTPS_PROXY, HTTP_PROXY and NO_PROXY also for them (botocore's `IMDSFetcher`). Through a proxy,
    this host would get the credentials of the proxy's host, or none.
    """
    # urllib takes the lower-case name before the other one.
    known = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if known.strip() != "*":
        environment["no_proxy"] = ",".join(filter(None, [known, *NEVER_PROXIED]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
