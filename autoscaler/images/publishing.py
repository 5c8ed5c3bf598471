"""The command `autoscaler images publish`."""

from typing import Annotated

import typer


def publish(
    image: Annotated[str, typer.Argument(metavar="AMI", help="The ID of the new image.")],
    region: Annotated[str, typer.Option(help="The image's region.")],
    subnet: Annotated[str, typer.Option(help="The subnet of the machine that tests the image.")],
    instance_type: Annotated[str, typer.Option(help="The machine's type.")],
) -> None:
    """Start a machine from a new image, and show the image to fleets if it passes its own test.

    Terminates the machine. Exits with 1 if the image fails, and with 2 if EC2 refuses a call.
    """
    import time
    from datetime import UTC, datetime

    from autoscaler.images.aws import AwsImages
    from autoscaler.images.smoke_test import ImageEc2Error
    from autoscaler.images.smoke_test import publish as run

    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    began = time.monotonic()
    try:
        ec2 = AwsImages(region, subnet, instance_type)
        verdict = run(ec2, image, moment, time.monotonic, time.sleep)
    except ImageEc2Error as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    seconds = time.monotonic() - began
    if not verdict.passed:
        typer.echo(f"{image}: failed after {seconds:.0f} s: {verdict.text}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{image}: published after {seconds:.0f} s: {verdict.text}")
