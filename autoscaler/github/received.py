"""How strictly GitHub's data are read, wherever they come from. What they mean is their readers' to say."""

from pydantic import BaseModel, ConfigDict


class Received(BaseModel):
    """Data in a shape that GitHub documents: no value of another type is taken for a right one.

    Fields that are not named are passed over, for GitHub adds some at any time. No error's text has
    a value in it: that may be a token or a JIT configuration.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", hide_input_in_errors=True)
