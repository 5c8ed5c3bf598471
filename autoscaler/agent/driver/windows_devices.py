"""The PCI devices of a Windows machine, as Windows' Plug and Play manager lists them. Pure."""

from __future__ import annotations

import re

from autoscaler.agent.driver.plan import PciDevice

LIST_DEVICES = (
    "Get-CimInstance Win32_PnPEntity -Filter 'Present = TRUE' | Where-Object DeviceID -like 'PCI\\*' |"
    " ForEach-Object { [Console]::Out.WriteLine($_.DeviceID + ' ' + ($_.CompatibleID -join ' ')) }"
)
"""PowerShell that prints a line for each device that is there: its ID and its compatible IDs."""

_DEVICE = re.compile(r"PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})\S*")
_CLASS = re.compile(r"&CC_([0-9A-F]{6})\b")
"""Both forms: Microsoft, "Identifiers for PCI Devices"."""


def read_devices(text: str) -> list[PciDevice]:
    """Return the devices in the output of LIST_DEVICES. Other lines, such as errors, are no devices."""
    found = []
    for line in text.splitlines():
        device, kind = _DEVICE.match(line), _CLASS.search(line)
        if device and kind:
            vendor, number = int(device.group(1), 16), int(device.group(2), 16)
            found.append(PciDevice(device.group(0), vendor, number, int(kind.group(1), 16)))
    return found
