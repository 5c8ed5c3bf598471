"""A lab for each test, with a clock that runs at 100 times the real speed."""

import itertools
from collections.abc import AsyncIterator

import pytest

from lab.ec2.identity import IdentitySigner
from lab.ec2.lifecycle import Delays
from lab.ec2.moto import MotoProcess
from lab.ec2.service import Account, LabEc2
from tests.lab.ec2.harness import (
    LISTED,
    PENDING,
    SHUTTING_DOWN,
    FakeHost,
    Fixture,
    ManualClock,
    connect,
)

ACCOUNTS = itertools.count(100000000000)


@pytest.fixture(scope="session")
def signer() -> IdentitySigner:
    return IdentitySigner.generate()


@pytest.fixture
async def ec2(moto: MotoProcess, signer: IdentitySigner) -> AsyncIterator[Fixture]:
    host, clock = FakeHost(), ManualClock()
    lab = LabEc2(
        host,
        clock,
        account=Account(str(next(ACCOUNTS)), "us-west-2"),
        delays=Delays(PENDING, SHUTTING_DOWN, LISTED),
        moto=moto,
        signer=signer,
    )
    await lab.start()
    try:
        fixture = Fixture(lab, host, clock, await lab.seed_network(zones=3), connect(lab))
        await fixture.make_template()
        yield fixture
    finally:
        await lab.close()
