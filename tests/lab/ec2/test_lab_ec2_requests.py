"""Requests that no SDK sends: the lab refuses each of them without an internal error."""

import contextlib
import io

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.ec2.query import Ec2Error, Tree, nest, parse_query
from tests.lab.ec2.harness import Fixture

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"Version=2016-11-15",
        b"Action",
        b"Action=DescribeInstances&Filter=\xff",
        b"Action=DescribeInstances&Filter=text",
        b"Action=DescribeInstances&Filter.1=text",
        b"Action=DescribeInstances&Filter.1.Name.2=list",
        b"Action=DescribeInstances&Filter.1=a&Filter.1.Name=b",
        b"Action=DescribeInstances&" + b"A." * 20 + b"B=c",
        b"Action=DescribeInstances&MaxResults=99999999999999999999",
        b"Action=CreateFleet&Type=instant&TargetCapacitySpecification.TotalTargetCapacity=x",
        b"Action=CreateFleet&Type=instant&TargetCapacitySpecification.TotalTargetCapacity=1",
        b"Action=RunInstances&ImageId.1=ami-1&InstanceType=t3.large",
        b"Action=TerminateInstances",
        b"Action=NoSuchAction",
        b"&".join(b"A%d=b" % number for number in range(20_001)),
    ],
)
async def test_malformed_requests_are_refused(ec2: Fixture, body: bytes) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(ec2.lab.endpoint_url, data=body, headers=FORM) as answer,
    ):
        assert answer.status in (400, 404)
    assert len(ec2.lab.instances) == 0
    assert len(await ec2.described()) == 0


async def test_a_body_above_the_size_limit_is_refused(ec2: Fixture) -> None:
    async with (
        aiohttp.ClientSession() as http,
        http.post(ec2.lab.endpoint_url, data=io.BytesIO(b"A=" + b"x" * 5_000_000)) as answer,
    ):
        assert answer.status == 413


NAMES = st.lists(st.sampled_from(["A", "B", "1", "2", "10"]), min_size=1, max_size=4).map(".".join)


@settings(deadline=None)
@given(st.dictionaries(NAMES, st.text(max_size=3), max_size=6))
def test_nested_parameters_keep_every_value_or_are_refused(fields: dict[str, str]) -> None:
    parts = [tuple(name.split(".")) for name in fields]
    if any(a != b and b[: len(a)] == a for a in parts for b in parts):
        with pytest.raises(Ec2Error, match="MalformedQueryString"):
            nest(fields)
    else:
        assert sorted(leaves(nest(fields))) == sorted(fields.values())


def leaves(node: object) -> list[str]:
    if isinstance(node, Tree):
        return [leaf for child in node.values() for leaf in leaves(child)]
    if isinstance(node, list):
        return [leaf for child in node for leaf in leaves(child)]
    return [str(node)]


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_any_body_is_parsed_as_a_form_or_refused(body: bytes) -> None:
    with contextlib.suppress(Ec2Error):
        assert "Action" in parse_query(body)
