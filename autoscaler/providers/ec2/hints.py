"""Fixes for errors of AWS and its SDK, by error code, for the log."""

_CREDENTIALS = (
    "give the AWS SDK credentials: an instance role, AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
    "AWS_SECRET_ACCESS_KEY"
)
_RENEW = "renew the credentials: they are unknown to AWS, or expired"
_PERMIT = "give the credentials the permissions in docs/ec2.md#permissions"
_LOG_IN = "log in again (aws sso login), or give the controller credentials that do not expire"
_NETWORK = (
    "let this host reach AWS: its network, DNS, or HTTPS_PROXY and NO_PROXY in the controller's "
    "environment"
)
HINTS = {
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "ProfileNotFound": _CREDENTIALS,
    "CredentialRetrievalError": _CREDENTIALS,
    "SSOTokenLoadError": _LOG_IN,
    "TokenRetrievalError": _LOG_IN,
    "UnauthorizedSSOTokenError": _LOG_IN,
    "ConnectTimeoutError": _NETWORK,
    "EndpointConnectionError": _NETWORK,
    "ProxyConnectionError": _NETWORK,
    "SSLError": "trust the certificate of AWS as this host sees it: put its CA into AWS_CA_BUNDLE",
    "AuthFailure": _RENEW,
    "ExpiredToken": _RENEW,
    "ExpiredTokenException": _RENEW,
    "InvalidClientTokenId": _RENEW,
    "UnrecognizedClientException": _RENEW,
    "RequestExpired": "correct this host's clock, or renew the credentials",
    "AccessDenied": _PERMIT,
    "UnauthorizedOperation": _PERMIT,
    "AccessDeniedException": _PERMIT,
    "InvalidSubnetID.NotFound": "correct subnets: they must be in this region and account",
}
"""What an operator can do, by the error's code."""
