"""One laboratory with a SKU for each story, shared by the stories: each looks at its own SKU only."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from lab.ec2.moto import MotoProcess
from lab.laboratory import LabFleet, Laboratory
from tests.lab.system.harness import ec2_sku
from tests.lab.system.pace import yielding

STORIES: dict[str, dict[str, Any]] = {
    "zones": ec2_sku("g5.xlarge"),
    "types": ec2_sku("g6.xlarge", "g5.2xlarge"),
    "scarce": ec2_sku("g5.4xlarge"),
    "options": {"on": [*ec2_sku("p5.4xlarge")["on"], *ec2_sku("c7i.2xlarge")["on"]]},
    "quota": ec2_sku("f2.6xlarge"),
    "cancelled": ec2_sku("g4dn.xlarge", idle={"timeout": "60s"}),
    "lifetime": ec2_sku("g4dn.2xlarge", lifetime="4m"),
    "warm": ec2_sku("g4dn.4xlarge", idle={"min": 2}),
    "aged": ec2_sku("g4dn.8xlarge", idle={"min": 1, "max_age": "3m"}),
    "private": ec2_sku("g6.2xlarge", access={"repositories": ["acme/widgets"]}),
    "closed": ec2_sku("c7i.4xlarge"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(moto: MotoProcess) -> AsyncIterator[Laboratory]:
    """A laboratory whose controller is ready; a lab minute takes a second on a quiet host."""
    fleet = LabFleet(
        "acme",
        ("widgets", "gadgets"),
        STORIES,
        scale=yielding(60.0),
        most_machines=150,
        group_repositories=("widgets",),
    )
    async with Laboratory(fleet, moto) as laboratory:
        await laboratory.start_controller()
        yield laboratory
