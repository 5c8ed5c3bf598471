"""The health check of DNS: what it resolves, and that its failure names the name servers."""

import socket
from pathlib import Path
from types import ModuleType

import pytest

from tests.agent.test_agent_timers import Stage

LOST = "https://api.github.invalid/rate_limit"
"""The top-level domain that no name server may resolve (RFC 6761)."""


def write_servers(root: Path, *servers: str, file: str = "etc/resolv.conf") -> None:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    lines = [f"nameserver {one}\n" for one in servers]
    (root / file).write_text("# nameserver 10.9.9.9\nsearch ec2.internal\n" + "".join(lines))


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def resolver_error() -> str:
    """Return this host's own words for a name that does not resolve. They depend on its name servers."""
    with pytest.raises(socket.gaierror) as caught:
        socket.getaddrinfo("api.github.invalid", None)
    return str(caught.value.strerror)


def test_a_machine_without_dns_says_so_and_gets_no_assignment(
    agent: ModuleType, open_folder: Path
) -> None:
    stage = Stage(agent, open_folder)
    write_servers(open_folder, "10.0.0.2")
    stage.controller.health_checks = {
        "github": LOST,
        "broker": "https://broker.github.invalid/health",
    }
    stage.assignment()
    reason = stage.live()
    assert "poll" not in {step for _, step in stage.controller.asked}
    assert reason == "the health checks failed: dns"
    checks = stage.controller.bodies["health-checks"]["checks"]
    (failed,) = [one for one in checks if not one["ok"]]
    error = resolver_error()
    assert failed["detail"] == (
        f"api.github.invalid does not resolve: {error}; broker.github.invalid does not resolve: {error}; "
        "asked name server 10.0.0.2"
    )
    assert not {"github", "broker"} & {one["name"] for one in checks}, "a request needs the name"


@pytest.mark.parametrize(
    ("servers", "behind", "named"),
    [
        ([], [], "an unknown name server"),
        (["10.0.0.2"], [], "name server 10.0.0.2"),
        (["10.0.0.2", "fd00:ec2::253"], [], "name servers 10.0.0.2, fd00:ec2::253"),
        (["127.0.0.53"], ["10.0.0.2"], "name servers 127.0.0.53, behind it 10.0.0.2"),
        (["10.0.0.2"], ["10.0.0.3"], "name server 10.0.0.2"),
    ],
)
def test_the_name_servers_are_those_of_resolv_conf(
    agent: ModuleType, tmp_path: Path, servers: list[str], behind: list[str], named: str
) -> None:
    if servers:
        write_servers(tmp_path, *servers)
    write_servers(tmp_path, *behind, file="run/systemd/resolve/resolv.conf")
    check = agent.check_dns([LOST], str(tmp_path))
    assert not check.ok
    assert check.detail.endswith(f"; asked {named}")


def test_names_that_resolve_pass(agent: ModuleType, tmp_path: Path) -> None:
    urls = ["http://localhost:8000/rate_limit", "https://127.0.0.1/health"]
    assert tuple(agent.check_dns(urls, str(tmp_path))) == ("dns", True, "localhost, 127.0.0.1")


def test_a_request_that_fails_does_not_hide_that_the_name_resolves(
    agent: ModuleType, tmp_path: Path
) -> None:
    host = agent.Host({"root": str(tmp_path), "runner_directory": "/nowhere"})
    closed = {"github": "http://127.0.0.1:1/rate_limit", "broker": "http://127.0.0.1:1/health"}
    found = {one.name: one.ok for one in agent.run_health_checks(closed, 0.0, host, 1.0)}
    assert (found["dns"], found["github"], found["broker"]) == (True, False, False)


def test_behind_a_proxy_only_its_name_is_needed(
    agent: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://localhost:3128")
    assert agent.check_dns([LOST, LOST + "/2"], str(tmp_path)).detail == "localhost"
    assert not agent.check_dns([LOST.replace("https", "http")], str(tmp_path)).ok
    monkeypatch.setenv("NO_PROXY", "github.invalid")
    assert not agent.check_dns([LOST], str(tmp_path)).ok
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.invalid:3128")
    check = agent.check_dns([LOST], str(tmp_path))
    assert check.detail.startswith("proxy.invalid does not resolve: ")


@pytest.mark.parametrize("url", ["http://[", "no url", "https://host:port/", "ftp://x.invalid"])
def test_a_malformed_url_is_left_to_its_own_check(
    agent: ModuleType, tmp_path: Path, url: str
) -> None:
    assert tuple(agent.check_dns([url], str(tmp_path))) == ("dns", True, "no name is needed")


def test_a_name_that_is_too_long_does_not_resolve(agent: ModuleType, tmp_path: Path) -> None:
    check = agent.check_dns([f"https://{'a' * 64}.example/"], str(tmp_path))
    assert "does not resolve: not a valid name" in check.detail
