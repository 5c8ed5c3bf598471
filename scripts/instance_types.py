"""Writes the EC2 provider's table of instance types from a CSV of the same facts.

    python scripts/instance_types.py SOURCE.csv > autoscaler/providers/ec2/data/instance_types.csv

SOURCE has the columns instance_type, vcpu, memory_mib, arch, gpu_count, gpu_maker, gpu_name and
linux_on_demand_usd_per_hour_us_east_1, among others. Types without a known size are omitted:
nothing can be counted for them. It never asks AWS.
"""

import csv
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

HEADER = (
    "instance_type",
    "vcpus",
    "memory_mib",
    "arch",
    "gpu_count",
    "gpu_maker",
    "gpu_name",
    "linux_usd_per_hour",
)
ARCHITECTURES = {"amd64": "x64", "x86_64": "x64", "x64": "x64", "arm64": "arm64"}


def table(rows: Iterable[Mapping[str, str]]) -> list[tuple[str, ...]]:
    """The rows of the table, sorted by type. Raises KeyError on an unknown architecture."""
    return sorted(
        (
            row["instance_type"],
            row["vcpu"],
            row["memory_mib"],
            ARCHITECTURES[row["arch"]],
            row["gpu_count"] or "0",
            row["gpu_maker"],
            row["gpu_name"],
            row["linux_on_demand_usd_per_hour_us_east_1"],
        )
        for row in rows
        if row["vcpu"] and row["arch"]
    )


def main() -> None:
    """Read the CSV named by the first argument, write the table to standard output."""
    with Path(sys.argv[1]).open(encoding="utf-8", newline="") as source:
        rows = table(csv.DictReader(source))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(rows)


if __name__ == "__main__":
    main()
