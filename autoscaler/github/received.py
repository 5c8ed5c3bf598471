"""The base class for data from GitHub, with its validation rules."""

from pydantic import BaseModel, ConfigDict


class Received(BaseModel):
    """Data in a format that GitHub documents, validated strictly: no value is converted.

    Ignores unknown fields, because GitHub adds fields at any time. Errors contain no values, because
    a value may be a token or a JIT configuration.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)
