"""What is left to do for a new fleet, in order: the steps at GitHub, and then commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoscaler.config import load
from autoscaler.providers.registry import provider_kinds


def remaining_steps(folder: Path, at_github: Sequence[str]) -> list[str]:
    """Return the steps until the first job. Raises ConfigurationError."""
    file = folder / "fleet.yaml"
    settings = load(file, provider_kinds(), files=False).settings
    name, provider = next(iter(settings.providers.items()))
    section: Any = provider.section
    label, sku = next(iter(settings.skus.items()))
    steps = [*at_github]
    if provider.kind == "ec2":
        steps.append(
            "once for each AWS account, for spot machines: "
            "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
        )
        if sku.accelerator is not None:
            steps.append(
                "a new AWS account has a quota of 0 for GPU instances: ask for more first, with the "
                "command that autoscaler doctor prints"
            )
        if sku.image is not None and sku.image.name is not None:
            steps.append(
                f"build an image: autoscaler images bake linux-gpu --region {section.region} "
                f"--subnet {section.subnets[0]}"
            )
        serve = f"run the controller on this host, under systemd: sudo autoscaler install -c {file}"
    else:
        steps.append(
            f"give the controller its rights in the cluster of {name}: docs/deploy.md, Runner pods"
        )
        serve = f"run the controller here, or in the cluster (docs/deploy.md): autoscaler serve -c {file}"
    if settings.server.webhook_listen is not None:
        steps.append(
            "put a proxy with a public certificate in front of "
            f"{settings.server.webhook_listen}: docs/deploy.md, A proxy for the webhook"
        )
    return [
        *steps,
        f"see what is still wrong, and the command that mends it: autoscaler doctor -c {file}",
        serve,
        f"see what the controller does: autoscaler status -c {file}",
        f"run a job with runs-on: [self-hosted, {label}]",
    ]
