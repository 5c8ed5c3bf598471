"""The software bill of materials of a release: SPDX 2.3 (JSON), from the packages that uv.lock pins.

Source: https://spdx.github.io/spdx-spec/v2.3/, and https://github.com/package-url/purl-spec for the addresses.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

Package = Mapping[str, Any]
"""An entry of uv.lock."""


def bill_of_materials(
    locked: Iterable[Package], name: str, created: int, files: Iterable[Path]
) -> str:
    """Return the document about a package of the lock file, all packages that it needs, and its files.

    Lists what any system and Python needs: markers are not evaluated. `created` is in seconds since 1970. The
    same arguments give the same text.
    """
    packages = needed({one["name"]: one for one in locked}, name)
    ours = packages[0]
    subjects = [_file(one) for one in files]
    digests = "".join(one["checksums"][0]["checksumValue"] for one in subjects)
    unique = hashlib.sha256(f"{name} {ours['version']} {digests}".encode()).hexdigest()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{ours['version']}",
        "documentNamespace": f"https://spdx.org/spdxdocs/{name}-{ours['version']}-{unique}",
        "creationInfo": {
            "created": datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: scripts/release.py"],
        },
        "packages": [_package(one) for one in packages],
        "files": subjects,
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", _id(ours["name"])),
            *(_related(one["SPDXID"], "GENERATED_FROM", _id(name)) for one in subjects),
            *(
                _related(_id(one["name"]), "DEPENDS_ON", _id(other))
                for one in packages
                for other in dependencies(one)
            ),
        ],
    }
    return json.dumps(document, indent=1) + "\n"


def needed(locked: Mapping[str, Package], name: str) -> list[Package]:
    """Return a package and all that it needs, itself first and the others by name."""
    found: dict[str, Package] = {}
    waiting = [name]
    while waiting:
        one = locked[waiting.pop()]
        if one["name"] not in found:
            found[one["name"]] = one
            waiting += dependencies(one)
    return [found.pop(name), *(found[other] for other in sorted(found))]


def dependencies(package: Package) -> list[str]:
    """Return the names of the packages that a package needs, also for its extras that the lock file selects."""
    extras = package.get("optional-dependencies", {})
    groups = [package.get("dependencies", []), *extras.values()]
    return sorted({one["name"] for group in groups for one in group})


def _package(package: Package) -> dict[str, Any]:
    name, version = package["name"], package["version"]
    source = package.get("sdist") or next(iter(package.get("wheels", [])), None)
    found = {
        "SPDXID": _id(name),
        "name": name,
        "versionInfo": version,
        "downloadLocation": source["url"] if source else "NOASSERTION",
        "filesAnalyzed": False,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:pypi/{name}@{version}",
            }
        ],
    }
    if source:
        found["checksums"] = [_checksum(source["hash"].removeprefix("sha256:"))]
    return found


def _file(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    # SPDX demands SHA-1 of files.
    first = {"algorithm": "SHA1", "checksumValue": hashlib.sha1(content).hexdigest()}  # noqa: S324
    return {
        "SPDXID": f"SPDXRef-File-{path.name.replace('_', '-')}",
        "fileName": f"./{path.name}",
        "checksums": [_checksum(hashlib.sha256(content).hexdigest()), first],
    }


def _checksum(value: str) -> dict[str, str]:
    return {"algorithm": "SHA256", "checksumValue": value}


def _id(name: str) -> str:
    return f"SPDXRef-Package-{name.replace('_', '-')}"


def _related(one: str, kind: str, other: str) -> dict[str, str]:
    return {
        "spdxElementId": one,
        "relationshipType": kind,
        "relatedSpdxElement": other,
    }
