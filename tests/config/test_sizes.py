"""Files with very many SKUs or schedules: refused at once, or checked in bounded time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.schedule_overlaps import MAX_STARTS_TOGETHER, changes, largest_minimum
from autoscaler.config.sizes import MAX_SCHEDULES, MAX_SKUS
from autoscaler.config.sku_settings import Idle
from tests.config.fleet_file import MINIMAL, Folder

SKU = (
    "  {name}:\n    on: [{{provider: east, instance_types: [g5.xlarge]}}]\n    image: {{name: i}}\n"
)
HOURS = st.integers(0, 23)


def skus(count: int) -> str:
    return MINIMAL + "".join(SKU.format(name=f"s{number}") for number in range(count - 1))


def schedules(count: int) -> str:
    entry = '{cron: "0 7 * * *", min: 1}'
    return f"{MINIMAL}    idle: {{schedule: [{', '.join([entry] * count)}]}}\n"


def test_the_largest_file_is_accepted(folder: Folder) -> None:
    assert len(folder.load(skus(MAX_SKUS)).settings.skus) == MAX_SKUS
    assert len(folder.load(schedules(MAX_SCHEDULES)).settings.skus["gpu"].idle.schedule) == 300


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (skus(MAX_SKUS + 1), "has 1001 SKUs, and 1000 are allowed"),
        (
            schedules(MAX_SCHEDULES + 1),
            "has 301 entries of idle.schedule in all SKUs, and 300 are allowed",
        ),
    ],
)
def test_a_larger_file_is_refused_with_the_number_and_the_bound(
    folder: Folder, text: str, what: str
) -> None:
    problem = folder.problem(text)
    assert (problem.line, problem.key, problem.what) == (13, "skus", what)


def idle(*entries: tuple[int, int, int], minimum: int = 0) -> Idle:
    """A policy with a schedule on January 2 for each hour, number of hours and minimum."""
    schedule = tuple({"cron": f"0 {at} 2 1 *", "for": f"{h}h", "min": n} for at, h, n in entries)
    return Idle.model_validate({"min": minimum, "schedule": schedule}, strict=False)


def test_the_considered_starts_of_all_schedules_are_bounded() -> None:
    every_minute = Idle.model_validate(
        {"schedule": ({"cron": "* * * * *", "min": 2},) * 3}, strict=False
    )
    found = changes({f"s{number}": every_minute for number in range(100)})
    assert sum(begins for _, begins, _ in found) == MAX_STARTS_TOGETHER


@given(
    st.lists(
        st.builds(
            lambda entries, minimum: idle(*entries, minimum=minimum),
            st.lists(st.tuples(HOURS, st.integers(1, 30), st.integers(0, 9)), max_size=3),
            st.integers(0, 5),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_the_largest_sum_is_the_one_that_a_count_of_every_hour_finds(policies: list[Idle]) -> None:
    def at(hour: int) -> int:
        """Return the sum at this hour of January 2."""
        return sum(
            max(
                [
                    one.minimum,
                    *(
                        entry.minimum
                        for entry in one.schedule
                        if 0 <= hour - int(entry.cron.split()[1]) < entry.duration / 3600
                    ),
                ]
            )
            for one in policies
        )

    found = largest_minimum({f"s{number}": one for number, one in enumerate(policies)})
    assert found.machines == max(at(hour) for hour in range(24))
