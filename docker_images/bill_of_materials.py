"""Prints the software bill of materials of an image, in CycloneDX 1.5 (JSON): run in a stage of its build.

    bill_of_materials.py IMAGE [NAME=VERSION=URL=SHA256 ...]

Lists the Debian packages, the Python packages of the interpreter that runs it, and each file that the build
downloaded. The same content gives the same bytes, so it has no time and no serial number.

Source: https://cyclonedx.org/docs/1.5/json, and https://github.com/package-url/purl-spec for the addresses.
"""

import json
import platform
import subprocess
import sys
from importlib.metadata import distributions
from urllib.parse import quote


def debian_packages():
    """Return the installed Debian packages, also half-configured ones."""
    columns = "${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\n"
    listed = subprocess.run(  # noqa: S603 - a fixed program of the image
        ["/usr/bin/dpkg-query", "--show", "--showformat", columns],
        stdout=subprocess.PIPE,
        check=True,
    )
    system = platform.freedesktop_os_release()["ID"]
    for line in listed.stdout.decode().splitlines():
        status, name, version, architecture = line.split("\t")
        if status not in ("not-installed", "config-files"):
            address = f"pkg:deb/{system}/{quote(name)}@{quote(version)}?arch={architecture}"
            yield {"type": "library", "name": name, "version": version, "purl": address}


def python_packages():
    """Return the packages that this interpreter imports."""
    for found in distributions():
        name, version = found.metadata["Name"], found.version
        address = f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version)}"
        yield {"type": "library", "name": name, "version": version, "purl": address}


def downloaded(words):
    """Return the files that the build downloaded."""
    for word in words:
        name, version, url, checksum = word.split("=", 3)
        yield {
            "type": "application",
            "name": name,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": checksum}],
            "externalReferences": [{"type": "distribution", "url": url}],
        }


def main(image, *files):
    """Print the document."""
    found = [*debian_packages(), *python_packages(), *downloaded(files)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": image}},
        "components": sorted(found, key=lambda one: (one.get("purl", ""), one["name"])),
    }
    json.dump(document, sys.stdout, indent=1)


main(*sys.argv[1:])
