"""Turns the options of `autoscaler init` into choices, and asks for those that are missing."""

import re
import shlex
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import typer
from pydantic_core import PydanticCustomError

from autoscaler.config import ConfigurationError, load
from autoscaler.config.settings.scalars import parse_public_url, parse_secure_url
from autoscaler.config.settings.sku import AcceleratorVendor, StockImage
from autoscaler.providers.ec2.instance_types import InstanceTypeError, instance_type
from autoscaler.providers.registry import provider_kinds
from autoscaler.setup.choices import DEFAULT_GROUP, Choices, Ec2Choice, Gpus, KubernetesChoice

_OWNER = r"[A-Za-z0-9][A-Za-z0-9_-]{0,38}"
_REPOSITORY = rf"{_OWNER}/[A-Za-z0-9._-]{{1,100}}"
_WORD = r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,252}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line about the fleet; None and () are those that were not given."""

    org: str | None = None
    repo: str | None = None
    personal: bool = False
    runner_group: str | None = None
    repositories: tuple[str, ...] = ()
    ec2: str | None = None
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    instance_type: str | None = None
    kubernetes: str | None = None
    namespace: str | None = None
    image: str | None = None
    public_url: str | None = None
    api_url: str | None = None
    fleet: str | None = None
    webhook: str | None = None


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks on the terminal. `accept` takes the default of each question that has one."""

    accept: bool

    def text(
        self, value: str | None, option: str, question: str, default: str | None = None
    ) -> str:
        """Return a value that was given, or the answer. Raises BadParameter without a terminal."""
        if value is not None:
            return value
        if default is not None and self.accept:
            return default
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"give {option}: there is no terminal to ask on")
        answer: str = typer.prompt(question, default=default)
        return answer.strip()


def choose(options: Options, asking: Asking) -> Choices:
    """Return the choices. Raises BadParameter for a value that cannot be used."""
    _refuse_contradictions(options)
    owner, repository, personal = _scope(options, asking)
    machines = _machines(options, asking)
    public_url = asking.text(
        options.public_url,
        "--public-url",
        "URL under which machines reach this controller",
        f"https://{private_address()}:8443",
    )
    group = options.runner_group or (DEFAULT_GROUP if repository else "gpu")
    default = re.sub("[^a-z0-9]+", "-", owner.lower()).strip("-")[:32].strip("-")
    chosen = Choices(
        fleet=_matching("[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", options.fleet or default, "--fleet"),
        api_url=_parsed(parse_secure_url, options.api_url or "https://api.github.com", "--api-url"),
        owner=owner,
        repository=repository,
        personal=personal,
        runner_group=group,
        repositories=tuple(_full_name(one, owner) for one in options.repositories),
        machines=machines,
        public_url=_https(_parsed(parse_public_url, public_url, "--public-url")),
        webhook=webhook_url(options.webhook) if options.webhook is not None else None,
    )
    _refuse_unusable(chosen)
    return chosen


def given(options: Options) -> list[str]:
    """Return the names of the options that were given."""
    return [one.name for one in fields(options) if getattr(options, one.name) != one.default]


def refuse_choices(options: Options, file: Path) -> None:
    """Refuse options about a fleet that exists: its fleet.yaml says it. Raises BadParameter."""
    changed = [name for name in given(options) if name != "webhook"]
    if changed:
        option = {"repositories": "--repository"}.get(
            changed[0], f"--{changed[0].removesuffix('s').replace('_', '-')}"
        )
        raise typer.BadParameter(
            f"{option} has no effect: {file} exists; edit this file instead. For what is still missing, run: "
            f"autoscaler init {shlex.quote(str(file.parent))}"
        )


def webhook_url(text: str) -> str:
    """Return the URL of /webhook. Raises BadParameter."""
    url = _parsed(parse_secure_url, text, "--webhook")
    if not url.endswith("/webhook"):
        raise typer.BadParameter(
            f"--webhook: {url} does not end with /webhook, the controller's path"
        )
    return url


def private_address() -> str:
    """Return this host's address in its own network. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation (RFC 5737)
        except OSError:
            return "127.0.0.1"
        address: str = probe.getsockname()[0]
        return address


def _refuse_contradictions(options: Options) -> None:
    if options.org is not None and options.repo is not None:
        raise typer.BadParameter("use either --org or --repo, not both")
    if options.ec2 is not None and options.kubernetes is not None:
        raise typer.BadParameter("use either --ec2 or --kubernetes, not both")
    if options.personal and options.repo is None:
        raise typer.BadParameter(
            "--personal goes with --repo: an organization is not your own account"
        )
    of_organization = options.runner_group is not None or options.repositories
    if options.repo is not None and of_organization:
        raise typer.BadParameter(
            "a repository has no runner groups: leave out --runner-group and --repository"
        )


def _refuse_options_of_other_machines(options: Options, kind: str) -> None:
    """Refuse options that would change nothing with these machines."""
    of_pods: dict[str, object] = {"--namespace": options.namespace, "--image": options.image}
    of_instances: dict[str, object] = {
        "--subnet": options.subnets or None,
        "--security-group": options.security_groups or None,
        "--instance-type": options.instance_type,
    }
    for option, value in (of_pods if kind == "ec2" else of_instances).items():
        if value is not None:
            raise typer.BadParameter(f"{option} has no effect with machines on {kind}")


def _refuse_unusable(chosen: Choices) -> None:
    """Refuse choices of which `check` refuses the fleet.yaml, before an App is created for it."""
    text = chosen.text(app_id=1).encode()
    try:
        load(Path("fleet.yaml"), provider_kinds(), files=False, content=text)
    except ConfigurationError as error:
        found = "\n".join(f"{one.key}: {one.what}; fix: {one.fix}" for one in error.problems)
        raise typer.BadParameter(f"fleet.yaml would not be valid:\n{found}") from None


def _scope(options: Options, asking: Asking) -> tuple[str, str | None, bool]:
    name = options.org or options.repo
    name = asking.text(name, "--org or --repo", "Organization, or OWNER/NAME of one repository")
    if options.org is None and "/" in name:
        owner, _, repository = _matching(_REPOSITORY, name, "--repo").partition("/")
        return owner, repository, options.personal
    return _matching(_OWNER, name, "--org"), None, False


def _machines(options: Options, asking: Asking) -> Ec2Choice | KubernetesChoice:
    given = "ec2" if options.ec2 else "kubernetes" if options.kubernetes is not None else None
    kind = asking.text(given, "--ec2 or --kubernetes", "Machines on ec2 or kubernetes", "ec2")
    _refuse_options_of_other_machines(options, kind)
    if kind == "ec2":
        region = asking.text(options.ec2, "--ec2", "AWS region", "us-east-1")
        subnets = options.subnets or _several(
            asking.text(None, "--subnet", "Subnets of the machines, with commas between them")
        )
        groups = options.security_groups or _several(
            asking.text(None, "--security-group", "Their security groups, with commas between them")
        )
        machine_type = options.instance_type or "g5.xlarge"
        return Ec2Choice(
            _matching(_WORD, region, "--ec2"),
            tuple(_matching("subnet-[0-9a-f]{2,17}", one, "--subnet") for one in subnets),
            tuple(_matching("sg-[0-9a-f]{2,17}", one, "--security-group") for one in groups),
            machine_type,
            StockImage.UBUNTU_24_04,
            _gpus(machine_type),
        )
    if kind != "kubernetes":
        raise typer.BadParameter(f"{kind!r} is neither ec2 nor kubernetes")
    context = asking.text(
        options.kubernetes,
        "--kubernetes",
        "Context of the kubeconfig (empty: the controller's own cluster)",
        "",
    )
    namespace = asking.text(
        options.namespace, "--namespace", "Namespace of the pods", "gpu-runners"
    )
    image = asking.text(
        options.image, "--image", "Container image of the runners (docs/kubernetes.md)"
    )
    return KubernetesChoice(
        _matching(f"({_WORD})?", context, "--kubernetes"),
        _matching("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", namespace, "--namespace"),
        _matching(_WORD, image, "--image"),
    )


def _gpus(name: str) -> Gpus | None:
    """Return the GPUs of an instance type whose driver a machine can install. Raises BadParameter."""
    try:
        found = instance_type(name)
    except InstanceTypeError as error:
        raise typer.BadParameter(f"--instance-type: {error.what}; fix: {error.fix}") from None
    has_driver = found.gpu_count and found.gpu_maker in set(AcceleratorVendor)
    return Gpus(found.gpu_maker, found.gpu_count) if has_driver else None


def _several(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"[,\s]+", text) if part)


def _full_name(name: str, owner: str) -> str:
    full = name if "/" in name else f"{owner}/{name}"
    return _matching(_REPOSITORY, full, "--repository")


def _matching(pattern: str, text: str, option: str) -> str:
    if re.fullmatch(pattern, text) is None:
        raise typer.BadParameter(f"{option}: {text!r} cannot be used")
    return text


def _parsed(parse: Callable[[str], str], text: str, option: str) -> str:
    try:
        return parse(text)
    except PydanticCustomError as error:
        fix = (error.context or {}).get("fix")
        raise typer.BadParameter(f"{option}: {error.message()}; fix: {fix}") from None


def _https(url: str) -> str:
    if not url.startswith("https://"):
        raise typer.BadParameter(f"--public-url: {url} is not https: machines send secrets to it")
    return url
