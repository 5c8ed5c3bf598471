"""The commands about machine images: `autoscaler images publish` and `prune`."""

from typing import Annotated

import typer


def publish(
    image: Annotated[str, typer.Argument(metavar="AMI", help="The ID of the new image.")],
    region: Annotated[str, typer.Option(help="The image's region.")],
    subnet: Annotated[str, typer.Option(help="The subnet of the machine that tests the image.")],
    instance_type: Annotated[str, typer.Option(help="The machine's type.")],
) -> None:
    """Test a new machine image, and show it to fleets if it passes.

    Starts a machine from the image, which tests itself, and terminates it. Exits with 1 if the image fails, and
    with 2 if EC2 refuses a call.
    """
    import time
    from datetime import UTC, datetime

    from autoscaler.images.interruptions import interruptible_sleep
    from autoscaler.providers.ec2.images.account import AwsImages, ImageEc2Error
    from autoscaler.providers.ec2.images.smoke_test import publish as run

    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    began = time.monotonic()
    try:
        ec2 = AwsImages(region, subnet, instance_type)
        verdict = run(ec2, image, moment, time.monotonic, interruptible_sleep)
    except ImageEc2Error as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo(f"{image}: the test was interrupted, and no machine of it is left", err=True)
        raise
    seconds = time.monotonic() - began
    if not verdict.passed:
        typer.echo(f"{image}: failed after {seconds:.0f} s: {verdict.text}", err=True)
        raise typer.Exit(1)
    typer.echo(f"{image}: published after {seconds:.0f} s: {verdict.text}")


def prune(
    region: Annotated[str, typer.Option(help="The images' region.")],
    image_set: Annotated[
        str, typer.Option(help="The image set: the value of the tag autoscaler:image-set.")
    ],
    keep: Annotated[
        int, typer.Option(min=1, help="How many published images of each recipe stay.")
    ] = 3,
    min_age: Annotated[
        int, typer.Option(min=1, metavar="DAYS", help="The age before which nothing is deleted.")
    ] = 14,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete them; without it, they are only listed.")
    ] = False,
) -> None:
    """List or delete old images of the recipes, with their snapshots.

    Never deletes an image of another set, or one that an instance or a launch template names. Exits with 2
    if EC2 refuses a call.
    """
    from datetime import UTC, datetime, timedelta

    from autoscaler.providers.ec2.images.account import ImageEc2Error
    from autoscaler.providers.ec2.images.pruning import AwsPruning, choose, delete_all

    try:
        ec2 = AwsPruning(region, image_set)
        chosen = choose(ec2.find(), datetime.now(UTC), keep, timedelta(days=min_age))
        if delete:
            delete_all(ec2, chosen, typer.echo)
        else:
            for one in chosen:
                typer.echo(f"would delete {one}")
    except ImageEc2Error as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
