"""The lab's stand-ins for net, icacls, sc, certutil and wevtutil, of which Wine has none or only stubs.

They keep what they did in files of `C:\\lab`, and answer as Windows would. certutil fetches the certificates of
`C:\\lab\\windows-update.pem`, and stores them with the real CryptoAPI.
"""

import ctypes
import json
import os
import re
import ssl
import sys
from ctypes import wintypes as wt
from typing import Any

LAB = "C:\\lab"
STATE = LAB + "\\administration.json"
UPDATES = LAB + "\\windows-update.pem"
NO_SUCH_ACCOUNT = 1332
"""ERROR_NONE_MAPPED."""

PEM = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
KINDS = ("[a-z]", "[A-Z]", "[0-9]", "[^a-zA-Z0-9]")
"""A password needs characters of three kinds (Microsoft, "Password must meet complexity requirements")."""


def load() -> dict[str, Any]:
    """Return what was done so far."""
    try:
        with open(STATE, encoding="utf-8") as file:
            return dict(json.load(file))
    except FileNotFoundError:
        return {"accounts": {}, "max_age": "42", "rights": {}, "services": {}, "cleared": []}


def net(words: list[str], state: dict[str, Any]) -> int:
    """Answer net.exe."""
    accounts = state["accounts"]
    if words == ["user"]:
        print(f"Administrator    Guest    {'    '.join(accounts)}")
    elif words[:2] == ["accounts", "/maxpwage:unlimited"]:
        state["max_age"] = "unlimited"
    elif words[0] == "user" and len(words) == 2 and words[1] in accounts:
        expires = "Never" if state["max_age"] == "unlimited" else "1/5/2027 8:00:00 AM"
        groups = "".join(f"*{one:<22}" for one in accounts[words[1]]["groups"])
        print(f"User name                    {words[1]}\nPassword expires             {expires}")
        print(f"Local Group Memberships      {groups}")
    elif words[0] == "user" and "/add" in words:
        name, password = words[1], words[2]
        if sum(bool(re.search(kind, password)) for kind in KINDS) < 3:
            print("The password does not meet the password policy requirements.")
            return 2
        if len(password) > 14:
            print("The password entered is longer than 14 characters. (Y/N)")
            return 2
        accounts[name] = {"password": password, "groups": ["Users"]}
    elif words[0] == "localgroup" and words[3:] == ["/add"] and words[2] in accounts:
        accounts[words[2]]["groups"].append(words[1])
    else:
        print("The user name could not be found.")
        return 2
    return 0


def icacls(words: list[str], state: dict[str, Any]) -> int:
    """Answer icacls.exe for one form: no inheritance, and these rights only."""
    folder, inheritance, option, *rights = words
    if not os.path.isdir(folder):
        print("The system cannot find the file specified.")
        return 2
    if (inheritance, option, rights[-1]) != ("/inheritance:r", "/grant:r", "/q"):
        return 87
    for right in rights[:-1]:
        account = right.partition(":")[0]
        if not account.startswith("*S-1-5-") and account not in state["accounts"]:
            print("No mapping between account names and security IDs was done.")
            return NO_SUCH_ACCOUNT
    state["rights"][folder] = rights[:-1]
    return 0


def sc(words: list[str], state: dict[str, Any]) -> int:
    """Answer sc.exe."""
    services = state["services"]
    if words[:1] == ["config"] and words[2] == "start=":
        services[words[1]] = words[3].upper()
    elif words[:1] == ["qc"]:
        print(f"        START_TYPE         : 4   {services.get(words[1], 'AUTO_START')}")
    else:
        return 1639
    return 0


def certutil(words: list[str], _state: dict[str, Any]) -> int:
    """Answer certutil.exe."""
    if words[:2] == ["-f", "-generateSSTFromWU"]:
        if not os.path.exists(UPDATES):
            print("CertUtil: The server name or address could not be resolved 0x80072ee7")
            return 1
        with open(UPDATES, encoding="ascii") as source, open(words[2], "w", encoding="ascii") as to:
            to.write(source.read())
        return 0
    if words[:3] != ["-addstore", "-f", "Root"]:
        return 1
    with open(words[3], encoding="ascii") as file:
        for one in PEM.findall(file.read()):
            store_root(ssl.PEM_cert_to_DER_cert(one))
    return 0


def store_root(der: bytes) -> None:
    """Add a certificate to the roots of the machine."""
    if sys.platform == "win32":  # type checkers of Linux know no CryptoAPI
        crypt = ctypes.windll.crypt32
        crypt.CertOpenStore.restype = wt.HANDLE
        # CERT_STORE_PROV_SYSTEM_W, CERT_SYSTEM_STORE_LOCAL_MACHINE
        arguments = ctypes.c_void_p(10), 0, ctypes.c_void_p(None), 0x20000, ctypes.c_wchar_p("Root")
        store = wt.HANDLE(crypt.CertOpenStore(*arguments))
        # X509_ASN_ENCODING, CERT_STORE_ADD_REPLACE_EXISTING
        crypt.CertAddEncodedCertificateToStore(store, 1, der, len(der), 3, None)
        crypt.CertCloseStore(store, 0)


def wevtutil(words: list[str], state: dict[str, Any]) -> int:
    """Answer wevtutil.exe."""
    if words[:1] != ["clear-log"] or len(words) != 2:
        return 87
    state["cleared"].append(words[1])
    return 0


COMMANDS = {"net": net, "icacls": icacls, "sc": sc, "certutil": certutil, "wevtutil": wevtutil}


def main() -> int:
    """Return the exit status."""
    name = os.path.basename(sys.argv[0]).lower().removesuffix(".exe")
    state = load()
    status = COMMANDS[name](sys.argv[1:], state)
    os.makedirs(LAB, exist_ok=True)
    with open(STATE, "w", encoding="utf-8") as file:
        json.dump(state, file)
    return status


if __name__ == "__main__":
    sys.exit(main())
