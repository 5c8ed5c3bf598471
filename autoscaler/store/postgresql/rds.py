"""Passwords for a database of Amazon RDS whose user signs in with an IAM identity.

The password is a signed URL, which is valid for 15 minutes and only to begin a session
(docs.aws.amazon.com/AmazonRDS/latest/UserGuide/UsingWithRDS.IAMDBAuth.html).
"""

from typing import Final

import botocore.session
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError

from autoscaler.controller.ports.replicas import StoreUnavailableError
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import Seconds

_VALID_FOR: Final[Seconds] = 900.0


def iam_password(region: str, host: str, port: str, user: str) -> str:
    """Return a password for this user, made with the AWS credentials of this process.

    Raises: StoreError without credentials, StoreUnavailableError if they cannot be read now.
    """
    try:
        credentials = botocore.session.get_session().get_credentials()
        if credentials is None:
            raise StoreError(
                "no AWS credentials for the user of the database: give this host an IAM role, "
                "or use password_file"
            )
        request = AWSRequest(
            "GET",
            f"https://{host}:{port}/",
            params={"Action": "connect", "DBUser": user},
        )
        signer = SigV4QueryAuth(
            credentials.get_frozen_credentials(), "rds-db", region, int(_VALID_FOR)
        )
        signer.add_auth(request)
    except BotoCoreError as error:
        raise StoreUnavailableError(
            f"no AWS credentials for the user of the database: {error}"
        ) from error
    return str(request.url).removeprefix("https://")
