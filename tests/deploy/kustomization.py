"""Builds a kustomization with the few features that deploy/kubernetes uses.

Fails on every other feature, so that it never differs from Kustomize in silence. It adds no hash to the
name of a generated ConfigMap.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Body = dict[str, Any]
"""One object of Kubernetes."""

_HEAD = {"apiVersion", "kind"}
_KEYS = {"resources", "components", "configMapGenerator", "images", "patches"}


def build(folder: Path, *components: Path) -> list[Body]:
    """The objects of a folder with a kustomization.yaml, and of further components."""
    objects = _add_to([], folder)
    for component in components:
        objects = _add_to(objects, component)
    return objects


def files_of(folder: Path) -> set[Path]:
    """The files that a kustomization uses, with those of the folders that it names."""
    body = _read(folder)
    found = {folder / "kustomization.yaml"}
    for name in [*body.get("resources", []), *body.get("components", [])]:
        path = (folder / name).resolve()
        found |= files_of(path) if path.is_dir() else {path}
    for generator in body.get("configMapGenerator", []):
        found |= {folder / name for name in generator["files"]}
    return found


def _read(folder: Path) -> Body:
    body: Body = yaml.safe_load((folder / "kustomization.yaml").read_text())
    unknown = body.keys() - _HEAD - _KEYS
    assert not unknown, f"{folder}: this renderer does not know {unknown}"
    return body


def _add_to(objects: list[Body], folder: Path) -> list[Body]:
    """The objects so far with those of a kustomization, which changes all of them."""
    body = _read(folder)
    for name in body.get("resources", []):
        path = (folder / name).resolve()
        objects = [*objects, *(build(path) if path.is_dir() else _objects(path))]
    for name in body.get("components", []):
        objects = _add_to(objects, (folder / name).resolve())
    objects = [*objects, *(_config_map(folder, one) for one in body.get("configMapGenerator", []))]
    for patch in body.get("patches", []):
        if "target" in patch:
            _apply(objects, patch)
        else:
            objects = _without(objects, patch)
    for image in body.get("images", []):
        _rename(objects, image)
    return objects


def _objects(file: Path) -> Iterator[Body]:
    yield from yaml.safe_load_all(file.read_text())


def _config_map(folder: Path, generator: Body) -> Body:
    assert generator.keys() == {"name", "namespace", "files"}
    data = {Path(name).name: (folder / name).read_text() for name in generator["files"]}
    metadata = {"name": generator["name"], "namespace": generator["namespace"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _without(objects: list[Body], patch: Body) -> list[Body]:
    """The objects without the one that a strategic merge patch deletes."""
    body = yaml.safe_load(patch["patch"])
    assert body.pop("$patch") == "delete", "this renderer knows no other patch without a target"
    left = [one for one in objects if not _is(one, body)]
    assert len(left) == len(objects) - 1, f"no object for the patch of {body}"
    return left


def _is(one: Body, named: Body) -> bool:
    """Whether an object has this kind, name and namespace."""
    metadata = {key: one["metadata"].get(key) for key in ("name", "namespace")}
    return named == {key: one[key] for key in ("apiVersion", "kind")} | {"metadata": metadata}


def _apply(objects: list[Body], patch: Body) -> None:
    operations = yaml.safe_load(patch["patch"])
    target = patch["target"]
    assert {"kind"} <= target.keys() <= {"kind", "name"}
    chosen = [
        one
        for one in objects
        if one["kind"] == target["kind"]
        and one["metadata"]["name"] == target.get("name", one["metadata"]["name"])
    ]
    assert chosen, f"no object for the patch of {target}"
    changes_kind = "/kind" in [one["path"] for one in operations]
    assert patch.get("options", {}) == ({"allowKindChange": True} if changes_kind else {})
    for one in chosen:
        for operation in operations:
            _operate(one, operation)


def _operate(body: Any, operation: Body) -> None:
    """Apply one operation of a JSON patch (RFC 6902) to an object."""
    parts = operation["path"].removeprefix("/").split("/")
    *path, last = [part.replace("~1", "/") for part in parts]
    for key in path:
        body = body[int(key)] if isinstance(body, list) else body[key]
    match operation["op"]:
        case "add" if isinstance(body, dict):
            body[last] = operation["value"]
        case "replace" if isinstance(body, dict) and last in body:
            body[last] = operation["value"]
        case "replace" if isinstance(body, list):
            body[int(last)] = operation["value"]
        case "remove":
            del body[int(last) if isinstance(body, list) else last]
        case "test":
            assert body[last] == operation["value"], operation
        case _:
            raise AssertionError(f"this renderer does not know {operation}")


def _rename(objects: list[Body], image: Body) -> None:
    for one in objects:
        pod = one.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", []):
            if container["image"] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
