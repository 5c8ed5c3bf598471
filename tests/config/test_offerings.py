"""Instance types, quotas and APIs that EC2 does not have are errors with their lines."""

import pytest

from autoscaler.config.problems import listed
from autoscaler.providers.ec2.checks.offerings import offering_problems
from autoscaler.providers.ec2.configuration import Ec2Section
from autoscaler.providers.ec2.instance_types import quota_names
from tests.config.fleet_file import Folder, changed, on_ec2


@pytest.mark.case(
    "an instance type that does not exist",
    topic="Operators' files",
    source="Karpenter: instance types",
)
def test_unknown_instance_types_are_refused(folder: Folder) -> None:
    text = changed(
        ("[g5.xlarge]", "\n      [g5.xlarge,\n       zz9.own,\n       m7g.large]"),
        ("[sg-0a]}", "[sg-0a], prices: {zz9.own: 2}}"),
    )
    problems = offering_problems(folder.load(text))
    assert [(problem.line, problem.key, problem.what, problem.fix) for problem in problems] == [
        (
            12,
            'providers.east.ec2.prices."zz9.own"',
            "instance type zz9.own is not known",
            "remove it: it has no effect",
        ),
        (
            17,
            "skus.gpu.on[0].instance_types[1]",
            "instance type zz9.own is not known",
            "use another instance type",
        ),
        (
            18,
            "skus.gpu.on[0].instance_types[2]",
            "m7g.large is arm64, the SKU is x64",
            "write arch: arm64 in the SKU, or name another type",
        ),
    ]


@pytest.mark.parametrize(
    ("old", "new", "key", "what", "fix"),
    [
        (
            "[g5.xlarge]",
            "[g5.48xlarge, g5.xlarge], efa_interfaces: 1",
            "skus.gpu.on[0].instance_types[1]",
            "g5.xlarge supports no EFA",
            "remove efa_interfaces",
        ),
        (
            "[g5.xlarge]",
            "[p5.48xlarge, p4d.24xlarge], efa_interfaces: 5",
            "skus.gpu.on[0].instance_types[1]",
            "p4d.24xlarge supports 4 EFA interfaces, and efa_interfaces is 5",
            "write efa_interfaces: 4",
        ),
        (
            "[g5.xlarge]",
            "[g5.48xlarge], efa_interfaces: 2",
            "skus.gpu.on[0].instance_types[0]",
            "g5.48xlarge supports 1 EFA interface, and efa_interfaces is 2",
            "write efa_interfaces: 1",
        ),
        (
            "[g5.xlarge]}]",
            "[g5.48xlarge], efa_interfaces: 1}]\n    os: windows",
            "skus.gpu.on[0].efa_interfaces",
            "has no effect on Windows",
            "remove it",
        ),
    ],
)
def test_adapters_that_a_type_does_not_support_are_refused(
    folder: Folder, old: str, new: str, key: str, what: str, fix: str
) -> None:
    problem = folder.problem(changed((old, new)))
    assert (problem.key, problem.what) == (key, what)
    assert problem.fix.startswith(fix)


def test_several_adapters_and_a_public_address_are_refused(folder: Folder) -> None:
    def text(count: int) -> str:
        return changed(
            ("[g5.xlarge]", f"[p4d.24xlarge], efa_interfaces: {count}"),
            ("[sg-0a]}", "[sg-0a], public_ip: true}"),
        )

    assert on_ec2(folder.load(text(1)).settings.skus["gpu"]).efa_interfaces == 1
    problem = folder.problem(text(2))
    assert problem.key == "skus.gpu.on[0].efa_interfaces"
    assert problem.what.endswith("and public_ip is true")


def test_types_with_and_without_an_adapter_on_card_0_need_options_of_their_own(
    folder: Folder,
) -> None:
    def text(types: str) -> str:
        return changed(("[g5.xlarge]", f"{types}, efa_interfaces: 8"))

    assert on_ec2(folder.load(text("[p6-b300.48xlarge]")).settings.skus["gpu"]).efa_interfaces == 8
    problem = folder.problem(text("[p6-b300.48xlarge, p6-b200.48xlarge]"))
    assert problem.key == "skus.gpu.on[0].instance_types"
    assert problem.what.startswith("p6-b300.48xlarge has no EFA on network card 0")
    assert problem.fix == "give it a launch option of its own"


def test_one_adapter_beside_an_ordinary_interface_leaves_no_public_address(
    folder: Folder,
) -> None:
    text = changed(
        ("[g5.xlarge]", "[p6-b300.48xlarge], efa_interfaces: 1"),
        ("[sg-0a]}", "[sg-0a], public_ip: true}"),
    )
    problem = folder.problem(text)
    assert problem.key == "skus.gpu.on[0].efa_interfaces"
    assert problem.fix == "remove efa_interfaces, or remove public_ip"


def test_quotas_of_unknown_families_are_refused(folder: Folder) -> None:
    text = changed(("[sg-0a]}", "[sg-0a], quotas: {Standrad: 1, spot/Qqqqqq: 2, on-demand/P: 3}}"))
    first, second = offering_problems(folder.load(text))
    assert first.key == 'providers.east.ec2.quotas."spot/Qqqqqq"'
    assert first.fix == f"write {listed(sorted(quota_names()))}"
    assert second.key == "providers.east.ec2.quotas.Standrad"
    assert second.fix == "did you mean Standard?"


def test_request_buckets_of_unknown_apis_are_refused(folder: Folder) -> None:
    bucket = "{burst: 1, per_second: 1}"
    text = changed(("[sg-0a]}", f"[sg-0a], request_buckets: {{CreateFlet: {bucket}}}}}"))
    problems = offering_problems(folder.load(text))
    assert [(problem.key, problem.fix) for problem in problems] == [
        ("providers.east.ec2.request_buckets.CreateFlet", "did you mean CreateFleet?")
    ]


def test_kubernetes_offerings_need_no_ec2_request(folder: Folder) -> None:
    text = changed(
        ("    ec2: {", "    kubernetes: {context: c, namespace: n}\n  other:\n    ec2: {")
    )
    text = text.replace("instance_types: [g5.xlarge]", "pod: {image: i}")
    assert offering_problems(folder.load(text)) == ()


def gpu_problems(
    folder: Folder, instance_types: str, count: int, vendor: str = "nvidia"
) -> list[tuple[str, str]]:
    """The problems of a SKU with so many accelerators on these types."""
    text = changed(("[g5.xlarge]", f"[{instance_types}]"))
    text += f"    accelerator: {{vendor: {vendor}, count: {count}}}\n"
    found = offering_problems(folder.load(text))
    return [(problem.key, problem.what) for problem in found]


def test_instance_types_with_another_number_of_gpus_are_refused(folder: Folder) -> None:
    assert gpu_problems(folder, "g5.xlarge, g5.12xlarge, m7i.large", 1) == [
        (
            "skus.gpu.on[0].instance_types[1]",
            "g5.12xlarge has 4 GPUs, and accelerator.count is 1",
        ),
        (
            "skus.gpu.on[0].instance_types[2]",
            "m7i.large has no GPU, and accelerator.count is 1",
        ),
    ]
    assert gpu_problems(folder, "g5.xlarge, g5.12xlarge, g6.12xlarge", 4) == [
        ("skus.gpu.on[0].instance_types[0]", "g5.xlarge has 1 GPU, and accelerator.count is 4")
    ]
    assert gpu_problems(folder, "g6f.xlarge", 1) == [], "a part of a GPU"


def test_instance_types_with_gpus_of_another_vendor_are_refused(folder: Folder) -> None:
    found = gpu_problems(folder, "g4ad.xlarge, g5.xlarge, m7i.large", 1, "amd")
    place = "skus.gpu.on[0].instance_types"
    assert found == [
        (f"{place}[1]", "g5.xlarge has GPUs of nvidia, and accelerator.vendor is amd"),
        (f"{place}[2]", "m7i.large has no GPU, and accelerator.count is 1"),
    ]


@pytest.mark.parametrize(
    ("written", "what", "fix"),
    [
        ('""', '"" is not a placement group', "write its name, in ASCII"),
        ('"groupé"', '"groupé" is not a placement group', "write its name, in ASCII"),
        (f'"{"g" * 256}"', "is longer than 255 characters", "shorten it"),
    ],
)
def test_a_name_that_no_placement_group_can_have_is_refused(
    folder: Folder, written: str, what: str, fix: str
) -> None:
    problem = folder.problem(changed(("[g5.xlarge]", f"[g5.xlarge], placement_group: {written}")))
    assert problem.key == "skus.gpu.on[0].placement_group"
    assert what in problem.what
    assert problem.fix == fix


def test_placement_groups_are_not_supported_on_kubernetes(folder: Folder) -> None:
    problem = folder.problem(
        changed(
            ("    ec2: {", "    kubernetes: {context: c, namespace: n}\n  other:\n    ec2: {"),
            (
                "instance_types: [g5.xlarge]",
                "pod: {image: i, resources: {cpu: '1'}}, placement_group: near",
            ),
        )
    )
    assert problem.key == "skus.gpu.on[0].placement_group"
    assert problem.what == 'is not supported by "east"'


@pytest.mark.parametrize(
    ("types", "keys", "key", "what", "fix"),
    [
        (
            "[g5.xlarge]",
            "capacity_reservation: r-1",
            "capacity_reservation",
            '"r-1" is not a capacity reservation\'s id',
            "write one such as cr-0123456789abcdef0",
        ),
        (
            "[g5.xlarge]",
            "capacity_reservation: cr-1, capacity: [on-demand, spot]",
            "capacity[1]",
            "a capacity reservation has no spot capacity",
            "write capacity: [on-demand], or a launch option of its own for spot",
        ),
        (
            "[g5.xlarge, g6.xlarge]",
            "capacity_reservation: cr-1",
            "instance_types",
            "cr-1 is of one instance type, and 2 are named",
            "name its type, and write a launch option of its own for each other type",
        ),
    ],
)
def test_what_a_capacity_reservation_cannot_have_is_refused(
    folder: Folder, types: str, keys: str, key: str, what: str, fix: str
) -> None:
    problem = folder.problem(changed(("[g5.xlarge]", f"{types}, {keys}")))
    assert (problem.key, problem.what, problem.fix) == (f"skus.gpu.on[0].{key}", what, fix)


BLOCK = "capacity: [capacity-block]"


@pytest.mark.parametrize(
    ("old", "new", "what", "fix"),
    [
        (
            "[g5.xlarge]",
            f"[g5.xlarge], {BLOCK}",
            "capacity-block needs a capacity_reservation",
            "add capacity_reservation with the id of the block",
        ),
        (
            "[g5.xlarge]",
            "[g5.xlarge], capacity_reservation: cr-1, capacity: [capacity-block, on-demand]",
            "capacity-block is not combined with other capacity types",
            "write capacity: [capacity-block], and a launch option of its own for the others",
        ),
        (
            "[g5.xlarge]}]",
            f"[g5.xlarge], capacity_reservation: cr-1, {BLOCK}}}]\n    os: windows",
            "AWS sells no capacity blocks for Windows",
            "name another capacity type",
        ),
    ],
)
def test_what_a_capacity_block_cannot_have_is_refused(
    folder: Folder, old: str, new: str, what: str, fix: str
) -> None:
    problem = folder.problem(changed((old, new)))
    assert (problem.key, problem.what, problem.fix) == ("skus.gpu.on[0].capacity", what, fix)


def test_a_quota_of_a_family_is_none_of_capacity_blocks(folder: Folder) -> None:
    text = changed(("[sg-0a]}", "[sg-0a], quotas: {P: 8}}"))
    (provider,) = folder.load(text).settings.providers.values()
    section = provider.section
    assert isinstance(section, Ec2Section)
    assert section.quota_limits() == {"spot/P": 8, "on-demand/P": 8}


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ("", "g5.xlarge (on-demand)"),
        (", placement_group: near", "g5.xlarge (on-demand) in near"),
        (
            ", capacity_reservation: cr-1, placement_group: near",
            "g5.xlarge (on-demand) in cr-1 in near",
        ),
    ],
)
def test_a_launch_option_is_shown_with_what_its_machines_are_launched_into(
    folder: Folder, keys: str, shown: str
) -> None:
    settings = folder.load(changed(("[g5.xlarge]", f"[g5.xlarge]{keys}"))).settings
    (provider,) = settings.providers.values()
    assert provider.section.describe(on_ec2(settings.skus["gpu"])) == shown
