"""One line registers a provider: every line names a provider kind, and a wrong line is an error."""

import subprocess
import sys
from collections import Counter

import pytest

from autoscaler.config import settings_type
from autoscaler.config.provider_kind import ProviderKind
from autoscaler.providers.ec2.kind import Ec2Kind
from autoscaler.providers.registry import PROVIDERS, provider_kinds


def test_every_registered_line_is_a_provider_kind_with_its_own_key() -> None:
    kinds = provider_kinds()
    assert len(kinds) == len(PROVIDERS)
    assert all(isinstance(kind, ProviderKind) for kind in kinds)
    assert max(Counter(kind.key for kind in kinds).values()) == 1
    assert "ec2" in {kind.key for kind in kinds}


def test_the_kinds_import_no_sdk() -> None:
    """`autoscaler check` loads them, and an SDK takes up to a second."""
    code = (
        "import sys\n"
        "from autoscaler.providers.registry import provider_kinds\n"
        "provider_kinds()\n"
        "print(*{'boto3', 'botocore', 'kubernetes', 'aiohttp'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_two_kinds_with_the_same_keys_are_an_error() -> None:
    with pytest.raises(TypeError, match="same key"):
        settings_type((Ec2Kind(), Ec2Kind()))


def test_two_kinds_that_share_a_key_of_launch_options_are_an_error() -> None:
    class Other(Ec2Kind):
        key = "other"

    with pytest.raises(TypeError, match="instance_types"):
        settings_type((Ec2Kind(), Other()))


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("autoscaler.providers.nowhere.kind:Kind", ModuleNotFoundError),
        ("autoscaler.providers.ec2.kind:Ec2Kid", AttributeError),
        ("autoscaler.providers.ec2.worker.channel:Timeouts", TypeError),
    ],
)
def test_a_wrong_line_in_the_registry_is_an_error(line: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        provider_kinds((line,))
