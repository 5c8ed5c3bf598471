"""The command `autoscaler images bake`, which builds, tests and publishes a machine image."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autoscaler.images.commands import DRIVER_BUDGET, Processor, usage_errors
from autoscaler.operator_commands.images.commands import publish

if TYPE_CHECKING:
    from autoscaler.images.baking import MachineRecipe
    from autoscaler.model.catalogue import Architecture
    from autoscaler.providers.ec2.images.account import AwsBuilds


def bake(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE",
            help="linux-cpu, linux-gpu, linux-rocm, windows or windows-gpu.",
        ),
    ],
    region: Annotated[str, typer.Option(help="The image's region.")],
    subnet: Annotated[str, typer.Option(help="The subnet of both machines. It needs internet.")],
    further: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- OPTION...]", help="Further options of packer build."),
    ] = None,
    arch: Annotated[Processor, typer.Option(help="The image's processor.")] = Processor.X64,
    machine: Annotated[
        str | None,
        typer.Option("--instance-type", help="The type of both machines; default: the recipe's."),
    ] = None,
    image_set: Annotated[
        str, typer.Option(help="The image set, for `autoscaler images prune`.")
    ] = "runner",
    root: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The root of the repository.", file_okay=False)
    ] = Path(),
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A versions.yaml; default: that of this installation."),
    ] = None,
) -> None:
    """Build, test and publish a machine image with Packer.

    Fleets use the image only after a machine that was started from it passed the test. Packer's plugins are
    installed if they are missing. Exits with 1 if the build or the test fails, and with 2 if nothing could be
    built.
    """
    import tempfile
    from datetime import UTC, datetime

    from autoscaler.images.baking import find_recipe, init_plugins, run_packer
    from autoscaler.images.build_watch import BuildWatch
    from autoscaler.model.catalogue import Architecture
    from autoscaler.providers.ec2.images.account import AwsBuilds

    name = f"{recipe}-{arch}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    with usage_errors(), tempfile.TemporaryDirectory() as folder:
        architecture = Architecture(arch)
        found = find_recipe(recipe, architecture, root)
        kind = machine or found.instance_types[architecture]
        with _stage("values and agent"):
            values = _write_inputs(Path(folder), found, architecture, file)
            init_plugins(root)
        values |= {"recipe": recipe, "image_name": name, "image_set": image_set}
        values |= {"region": region, "subnet_id": subnet, "instance_type": kind}
        words = ["build", "-color=false"]
        words += [word for key, value in values.items() for word in ("-var", f"{key}={value}")]
        with _stage("build"):
            builds = AwsBuilds(region, name)
            watch = BuildWatch(builds.state)
            status = run_packer([*words, *(further or ()), str(root / found.template)], watch)
        if watch.reason:
            _end_build(builds, watch.reason)
    if status != 0:
        typer.echo(f"packer ended with status {status}: there is no image", err=True)
        raise typer.Exit(1)
    with _stage("test"):
        publish(_image_id(region, name), region, subnet, kind)
    typer.echo(f'in fleet.yaml: image: {{name: "autoscaler/{recipe}-{arch}-*", owner: self}}')


def _end_build(builds: "AwsBuilds", reason: str) -> None:
    """Terminate the machine of a build that was ended, if Packer left it, say why, and exit with 1."""
    from autoscaler.providers.ec2.images.account import ImageEc2Error

    typer.echo(f"{reason}: there is no image", err=True)
    try:
        for machine in builds.terminate():
            typer.echo(f"terminated the build machine {machine}", err=True)
    except ImageEc2Error as error:
        typer.echo(f"{error}; look for a build machine that is left, and terminate it", err=True)
    raise typer.Exit(1)


def _write_inputs(
    folder: Path,
    recipe: "MachineRecipe",
    architecture: "Architecture",
    file: Path | None,
) -> dict[str, str]:
    """Write the agent and the driver's plan; return the template's values that come from this installation."""
    import hashlib
    import json
    import os
    from datetime import UTC, datetime

    from autoscaler.app.agent_file import build_agent
    from autoscaler.images.baking import template_values
    from autoscaler.images.driver import driver_plan
    from autoscaler.images.findings import runner_findings
    from autoscaler.images.load import load_versions

    versions, agent = load_versions(file), build_agent()
    for one in runner_findings(versions.versions.runner, datetime.now(UTC).date()):
        problem = versions.document.problem(one.path, one.what, one.fix, warning=one.warning)
        typer.echo(str(problem), err=True)
    values = template_values(versions, recipe.platform, architecture)
    (folder / "agent.py").write_bytes(agent)
    values |= {"agent_file": str(folder / "agent.py")}
    values |= {"agent_sha256": hashlib.sha256(agent).hexdigest()}
    values |= {"endpoint": os.environ.get("AWS_ENDPOINT_URL", "")}
    if recipe.vendor is not None:
        plan = driver_plan(versions, recipe.platform, architecture, recipe.vendor)
        (folder / "driver.json").write_text(json.dumps({**plan, "budget_s": DRIVER_BUDGET}))
        values |= {"driver_plan": str(folder / "driver.json")}
    return values


def _image_id(region: str, name: str) -> str:
    from autoscaler.providers.ec2.images.account import AwsImages, ImageEc2Error

    try:
        return AwsImages(region).find(f"autoscaler/{name}")
    except ImageEc2Error as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Print the seconds that a stage took, if it did not fail."""
    import time

    began = time.monotonic()
    yield
    typer.echo(f"stage {name}: {time.monotonic() - began:.0f} s")
