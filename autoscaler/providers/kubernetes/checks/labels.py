"""Checks labels, node selectors and tolerations in overlays: the API server refuses a pod with wrong ones.

Sources: `ValidateLabels` of apimachinery/pkg/apis/meta/v1/validation, and `ValidateTolerations` of
kubernetes/pkg/apis/core/validation/validation.go. Those of the pod's own keys have types of their own.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import KeyPath, Problem, listed, nearest, show
from autoscaler.config.reading.wording import sentence
from autoscaler.config.settings.shapes import Section
from autoscaler.providers.kubernetes.checks.contradictions import PodOf, pod_of, pods_of
from autoscaler.providers.kubernetes.configuration import LabelValue, QualifiedName, TaintEffect

_OPERATORS = ("Exists", "Equal", "Lt", "Gt")
Wrong = tuple[str, str]
"""What is wrong, and what to write."""


def check(configuration: Configuration) -> Iterator[Problem]:
    """Return what the API server refuses in the overlays."""
    for one in pods_of(configuration):
        yield from run_checks((_overlay,), configuration, one)


def _overlay(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    overlay, path = pod_of(one).overlay, (*one.path, "pod", "overlay")
    for place in (("metadata", "labels"), ("spec", "nodeSelector")):
        for key, value in _mapping(_mapping(overlay.get(place[0])).get(place[1])).items():
            wrong = _wrong(QualifiedName, key) or (value is not None and _wrong(LabelValue, value))
            if wrong:
                yield configuration.error((*path, *place, key), *wrong)
    found = _mapping(overlay.get("spec")).get("tolerations")
    for index, toleration in enumerate(found if isinstance(found, list) else ()):
        for key, wrong in _toleration(_mapping(toleration)):
            at: KeyPath = (*path, "spec", "tolerations", index, key)
            yield configuration.error(at, *wrong)


def _toleration(toleration: Mapping[str, Any]) -> Iterator[tuple[str, Wrong]]:
    """Return what is wrong with a toleration, by its key."""
    key, value = toleration.get("key") or "", toleration.get("value") or ""
    operator, effect = toleration.get("operator") or "Equal", toleration.get("effect") or ""
    for name, given, known in (
        ("operator", operator, _OPERATORS),
        ("effect", effect, ("", *TaintEffect)),
    ):
        if given not in known:
            words = [one for one in known if one]
            meant = nearest(str(given), words)
            fix = f"did you mean {meant}?" if meant else f"write {listed(words)}"
            yield name, (f"{show(given)} is not {listed(words)}", fix)
    if key and (wrong := _wrong(QualifiedName, key)):
        yield "key", wrong
    if not key and operator != "Exists":
        yield "operator", ("must be Exists without a key", "write operator: Exists, or a key")
    if value and operator == "Exists":
        yield "value", ("cannot be combined with operator: Exists", "remove one of them")
    elif value and (wrong := _wrong(LabelValue, value)):
        yield "value", wrong
    if "tolerationSeconds" in toleration and effect != TaintEffect.NO_EXECUTE:
        what = "needs effect: NoExecute"
        yield "tolerationSeconds", (what, "write effect: NoExecute, or remove it")


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _wrong(shape: Any, value: object) -> Wrong | None:
    try:
        _adapter(shape).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        return sentence(error.errors(include_url=False)[0], Section)
    return None


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
