"""The Compose file and the proxies' examples fit the product: paths, ports, limits, times and rights."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.app.parts import FINISH_WITHIN
from autoscaler.server.listening.listener import _LAST_ARRIVALS, _LAST_BYTES
from autoscaler.server.listening.settings import ServerSettings
from autoscaler.server.webhook import WebhookLimits
from tests.config.keys import certificate, curve_key, pem
from tests.deploy.manifests import ROOT, container, fleet

COMPOSE = ROOT / "deploy" / "compose" / "compose.yaml"
NGINX = ROOT / "deploy" / "proxy" / "nginx.conf"
CADDY = ROOT / "deploy" / "proxy" / "Caddyfile"


def controller() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]["controller"]
    return found


def targets(service: dict[str, Any]) -> set[str]:
    return {one["target"] for one in [*service["secrets"], *service["volumes"]]}


def test_the_container_has_every_file_of_the_example_and_may_write_the_store() -> None:
    server, github = fleet()["server"], fleet()["github"]
    named = {server[key] for key in ("admin_token_file", "metrics_token_file")}
    named |= {server["tls"][key] for key in ("certificate_file", "key_file", "ca_file")}
    named |= {github["apps"][0]["private_key_file"], github["webhook_secret_file"]}
    folder = str(Path(fleet()["store"].removeprefix("sqlite:///")).parent)
    file = controller()["command"][-1]
    assert targets(controller()) == {*named, folder, file}
    writable = {one["target"] for one in controller()["volumes"] if not one.get("read_only")}
    assert writable == {folder}


def test_every_secret_of_the_service_is_defined() -> None:
    defined = set(yaml.safe_load(COMPOSE.read_text())["secrets"])
    assert {one["source"] for one in controller()["secrets"]} == defined


def test_the_container_has_no_privileges_and_time_to_stop() -> None:
    service = controller()
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "user", "cap_add", "network_mode", "pid"} & set(service)
    shutdown = ServerSettings(listen=None).shutdown  # type: ignore[arg-type]
    needed = _LAST_ARRIVALS + shutdown + _LAST_BYTES + FINISH_WITHIN
    assert int(service["stop_grace_period"].removesuffix("s")) > needed
    assert service["command"] == container()["args"]


def test_only_this_host_reaches_the_webhook_in_plain_http() -> None:
    machines, webhook = controller()["ports"]
    listens = [fleet()["server"][key].rpartition(":")[2] for key in ("listen", "webhook_listen")]
    assert machines == f"{listens[0]}:{listens[0]}"
    assert webhook == f"127.0.0.1:{listens[1]}:{listens[1]}"


def test_the_health_check_is_that_of_the_pod() -> None:
    check, probe = controller()["healthcheck"], container()["livenessProbe"]
    code = check["test"][-1]
    compile(code, str(COMPOSE), "exec")
    assert f"https://localhost:8443{probe['httpGet']['path']}" in code
    assert (check["interval"], check["timeout"], check["retries"]) == ("10s", "10s", 3)


def seconds(text: str, name: str) -> int:
    """Return the one value of a setting in seconds."""
    (found,) = set(re.findall(rf"^\s*{name} (\d+)s;?$", text, re.MULTILINE))
    return int(found)


@pytest.mark.parametrize(
    ("file", "limit", "head", "body", "upstream"),
    [
        (
            NGINX,
            "client_max_body_size 1m;",
            "client_header_timeout",
            "client_body_timeout",
            "keepalive_timeout",
        ),
        (CADDY, "max_size 1048576", "read_header", "read_body", "keepalive"),
    ],
    ids=["nginx", "caddy"],
)  # fmt: skip
def test_a_proxy_has_the_limits_of_the_server(
    file: Path, limit: str, head: str, body: str, upstream: str
) -> None:
    text, server = file.read_text(), ServerSettings(listen=None)  # type: ignore[arg-type]
    assert WebhookLimits().body == 2**20
    assert limit in text
    assert seconds(text, head) == server.head
    assert seconds(text, body) == WebhookLimits().body_timeout
    # A proxy that keeps a connection longer than the server sends requests into closed ones.
    assert seconds(text, upstream) < server.keepalive


@pytest.mark.systems
def test_nginx_accepts_its_example(tmp_path: Path) -> None:
    text = NGINX.read_text()
    for name, content in (
        ("fullchain.pem", certificate(curve_key(), "webhooks.example.com")),
        ("privkey.pem", pem(curve_key())),
    ):
        (tmp_path / name).write_text(content)
        text = text.replace(
            f"/etc/letsencrypt/live/webhooks.example.com/{name}", str(tmp_path / name)
        )
    (tmp_path / "site.conf").write_text(text)
    whole = f"error_log stderr;\npid {tmp_path}/pid;\nevents {{}}\nhttp {{\n"
    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"):
        whole += f"{kind}_temp_path {tmp_path}/{kind};\n"
    (tmp_path / "nginx.conf").write_text(
        f"{whole}access_log off;\ninclude {tmp_path}/site.conf;\n}}\n"
    )
    checked = subprocess.run(
        ["nginx", "-t", "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    assert "warn" not in checked.stderr


@pytest.mark.systems
def test_caddy_accepts_its_example(tmp_path: Path) -> None:
    checked = subprocess.run(
        ["caddy", "validate", "--config", str(CADDY), "--adapter", "caddyfile"],
        capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(tmp_path)},
    )  # fmt: skip
    assert checked.returncode == 0, checked.stderr
    formatted = subprocess.run(
        ["caddy", "fmt", str(CADDY)], capture_output=True, text=True, check=False
    )
    assert formatted.stdout == CADDY.read_text()
