"""What machines cost in the last days."""

import pytest

from autoscaler.model.accounting import MachineUse, Usage, day_of
from autoscaler.model.identifiers import ProviderName, SkuName
from autoscaler.views.spending import MOST_ROWS, SpendingKey, spending


def used(
    use: MachineUse,
    dollars: float,
    sku: str = "gpu",
    repository: str = "",
    provider: str = "east",
    times: int = 1,
) -> Usage:
    return Usage(
        20_000, ProviderName(provider), SkuName(sku), repository, use, 1800.0, dollars, times
    )


MONTH = [
    used(MachineUse.JOB, 10.0, repository="acme/widgets", times=4),
    used(MachineUse.JOB, 5.0, repository="acme/gears", times=2),
    used(MachineUse.JOB, 1.0, "cpu", "acme/widgets"),
    used(MachineUse.BOOT, 2.0),
    used(MachineUse.READY, 0.5),
    used(MachineUse.END, 0.25),
    used(MachineUse.FAILED_LAUNCH, 3.0, provider="west", times=7),
]


def test_a_row_says_what_its_money_bought() -> None:
    gpu, cpu = spending(MONTH, 20_000, {SpendingKey.SKU}).rows
    assert (gpu.sku, gpu.provider, gpu.repository, gpu.dollars) == ("gpu", "", "", 20.75)
    assert (gpu.job, gpu.boot, gpu.ready, gpu.end, gpu.failed_launch) == (15.0, 2.0, 0.5, 0.25, 3.0)
    assert (gpu.hours, gpu.jobs, gpu.failed_launches) == (3.0, 6, 7)
    assert (cpu.sku, cpu.dollars, cpu.jobs, cpu.failed_launches) == ("cpu", 1.0, 1, 0)


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ({SpendingKey.PROVIDER}, [("east", "", "", 18.75), ("west", "", "", 3.0)]),
        (
            {SpendingKey.REPOSITORY},
            [("", "", "acme/widgets", 11.0), ("", "", "", 5.75), ("", "", "acme/gears", 5.0)],
        ),
        (
            {SpendingKey.SKU, SpendingKey.REPOSITORY},
            [
                ("", "gpu", "acme/widgets", 10.0),
                ("", "gpu", "", 5.75),
                ("", "gpu", "acme/gears", 5.0),
                ("", "cpu", "acme/widgets", 1.0),
            ],
        ),
    ],
)
def test_rows_are_by_the_chosen_keys_the_most_expensive_first(
    by: set[SpendingKey], rows: list[tuple[str, str, str, float]]
) -> None:
    found = spending(MONTH, 20_000, by)
    assert [(row.provider, row.sku, row.repository, row.dollars) for row in found.rows] == rows
    assert (found.total.dollars, found.total.jobs, found.omitted) == (21.75, 7, 0)


def test_an_answer_has_the_most_expensive_rows_and_the_sum_of_all() -> None:
    many = [
        used(MachineUse.JOB, float(number), repository=f"acme/r{number}")
        for number in range(MOST_ROWS + 2)
    ]
    found = spending(many, 20_000, {SpendingKey.REPOSITORY})
    assert (len(found.rows), found.omitted) == (MOST_ROWS, 2)
    assert found.rows[-1].dollars == 2.0
    assert found.total.dollars == sum(range(MOST_ROWS + 2))


def test_a_day_is_one_of_utc() -> None:
    assert spending([], day_of(86_400.0 * 20_000 + 86_399.0), ()).since == "2024-10-04"
    assert day_of(86_400.0 * 20_001) == 20_001
