"""The types of single values of Kubernetes in fleet.yaml, by name."""

from typing import Annotated

from pydantic import AfterValidator

from autoscaler.config.problems import show
from autoscaler.config.settings.scalars import Matching, wrong
from autoscaler.providers.kubernetes.values.image_references import FIX, is_image_reference
from autoscaler.providers.kubernetes.values.quantities import quantity

MAX_DNS_LABEL = 63

Namespace = Annotated[
    str,
    Matching(
        "[a-z0-9]([a-z0-9-]*[a-z0-9])?",
        "a name of Kubernetes",
        "use a to z, 0 to 9 and - only",
        maximum=MAX_DNS_LABEL,
    ),
]
ObjectName = Annotated[
    str,
    Matching(
        r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?",
        "a name of Kubernetes",
        "use a to z, 0 to 9, dots and - only",
        maximum=253,
    ),
]
QualifiedName = Annotated[
    str,
    Matching(
        r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        "a name of Kubernetes",
        "write NAME or DOMAIN/NAME, such as nvidia.com/gpu",
        maximum=317,
    ),
]
ExtendedResource = Annotated[
    str,
    Matching(
        r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?",
        "a resource of a device plugin",
        "write DOMAIN/NAME, such as amd.com/gpu",
        maximum=317,
    ),
]
LabelValue = Annotated[
    str,
    Matching(
        r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?",
        "the value of a label",
        "use at most 63 letters, digits, dots, - and _",
    ),
]


def _check_quantity(text: str) -> str:
    try:
        quantity(text)
    except ValueError:
        fix = 'write one such as "4", 500m or 56Gi'
        raise wrong(f"{show(text)} is not a quantity", fix) from None
    return text


Quantity = Annotated[str, AfterValidator(_check_quantity)]


def _check_image_reference(text: str) -> str:
    if not is_image_reference(text):
        raise wrong(f"{show(text)} is not an image reference", FIX)
    return text


ImageReference = Annotated[str, AfterValidator(_check_image_reference)]
