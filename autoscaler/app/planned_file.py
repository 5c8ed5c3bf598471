"""What a sent fleet.yaml may make the controller plan with, and which of its keys the plan uses."""

from autoscaler import config
from autoscaler.model.catalogue import Catalogue

MAX_READY = 20_000
"""Maximum number of ready machines in a file to plan with. The event loop makes the plan."""

MAX_PLANNED_SKUS = 200
"""Maximum number of SKUs in a file to plan with."""

MAX_OFFERINGS = 3000
"""Maximum number of offerings in a file to plan with. The planner may look at each of them."""


def refuse_large(new: config.Configuration) -> None:
    """Raise ConfigurationError if a plan would match too many SKUs, or launch too many idle machines."""
    settings = new.settings
    if len(settings.skus) > MAX_PLANNED_SKUS:
        what = f"has {len(settings.skus)} SKUs, and a plan may have {MAX_PLANNED_SKUS}"
        fix = "leave out SKUs that have no jobs now"
        raise config.ConfigurationError([new.document.problem(("skus",), what, fix)])
    idle = (sku.idle for sku in settings.skus.values())
    ready = sum(max([one.minimum, *(entry.minimum for entry in one.schedule)]) for one in idle)
    limit = settings.limits.machines
    if ready > MAX_READY and (limit is None or limit > MAX_READY):
        what = f"keep up to {ready} machines ready, and a plan may have {MAX_READY}"
        fix = "lower idle.min and the minimums of schedules, or set limits.machines"
        raise config.ConfigurationError([new.document.problem(("skus",), what, fix)])


def refuse_many_offerings(new: config.Configuration, found: Catalogue) -> None:
    """Raise ConfigurationError if a plan may have to look at too many offerings."""
    options = [option for sku in found.skus.values() for option in sku.launch_options]
    count = sum(len(option.offerings) for option in options)
    if count > MAX_OFFERINGS:
        what = (
            f"have {count} offerings (instance types in zones), and a plan may have {MAX_OFFERINGS}"
        )
        fix = "leave out SKUs that have no jobs now, or name fewer instance_types"
        raise config.ConfigurationError([new.document.problem(("skus",), what, fix)])


def as_reloaded(in_use: config.Configuration, new: config.Configuration) -> config.Configuration:
    """Return the configuration in use with the keys of a sent one that a running controller can use.

    No file that the sent one names is read. Raises ConfigurationError.
    """
    before, sent = in_use.settings, new.settings
    for name in before.providers.keys() & sent.providers.keys():
        if before.providers[name].kind != sent.providers[name].kind:
            what = "is of another kind than the running provider"
            fix = "undo this change to plan with the others"
            problem = new.document.problem(("providers", name), what, fix)
            raise config.ConfigurationError([problem])
    skus = {
        name: sku.model_copy(update={"boot_script_file": None}) for name, sku in sent.skus.items()
    }
    github = before.github.model_copy(update={"registrations": sent.github.registrations})
    # A SKU may name a provider that only the sent file has. Nothing is launched there.
    providers = {**sent.providers, **before.providers}
    changed = before.model_copy(
        update={"skus": skus, "limits": sent.limits, "github": github, "providers": providers}
    )
    return config.Configuration(in_use.path, changed, new.document, new.warnings)
