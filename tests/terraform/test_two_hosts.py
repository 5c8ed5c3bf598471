"""Two hosts with a store on PostgreSQL: the real host.py, controllers and database on loopback.

Each host listens on an address of its own. On real hosts, fleet.yaml names all addresses.
"""

import asyncio
import contextlib
import os
import secrets
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from lab.controller_process import ControllerProcess, parse_metrics
from lab.ec2.moto import MotoProcess
from lab.ports import free_ports
from lab.terraform.front import TerraformFront
from tests.config.fleet_file import MINIMAL, NAMED_FILES
from tests.patience import PATIENCE
from tests.store.postgresql_server import PostgresqlServer
from tests.terraform.account import client, credentials
from tests.terraform.hosts import Account, Host

DOMAIN = "fleet.example.com"
DATABASE_CA = "-----BEGIN CERTIFICATE-----\nof Amazon\n-----END CERTIFICATE-----\n"
ADMIN, METRICS = "a" * 40, "m" * 40
SECRETS = {
    "github_app_private_key": NAMED_FILES["app.pem"],
    "webhook_secret": "w" * 40,
    "admin_token": f"alice operate {ADMIN}",
    "metrics_token": METRICS,
}
SERVER = f"""\
server:
  listen: 0.0.0.0:PORT
  tls: {{certificate_file: tls/server.pem, key_file: tls/server.key}}
  public_url: https://{DOMAIN}:8443
  admin_token_file: secrets/admin-token
  metrics_token_file: secrets/metrics-token
store: STORE
"""


@pytest.fixture
def database() -> Iterator[str]:
    server = PostgresqlServer()
    yield server.database()
    server.close()


def hosts_certificate(folder: Path) -> str:
    """Return the certificate and its key, as docs/terraform.md makes them."""
    file = folder / "hosts.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650"
    words += f" -subj /CN={DOMAIN} -addext subjectAltName=DNS:{DOMAIN} -keyout {file} -out {file}"
    subprocess.run(words.split(), check=True, capture_output=True)
    return file.read_text()


def fleet_file(port: int, database: str) -> str:
    """Return fleet.yaml as the module `fleet` writes it, with this store."""
    head, _, rest = MINIMAL.partition("server:\n")
    head = head.replace("app.pem", "secrets/github-app.pem")
    head = head.replace(
        "webhook_secret_file: secret", "webhook_secret_file: secrets/webhook-secret"
    )
    # Nothing answers there. A controller leads all the same.
    head = head.replace("scopes:", "api_url: http://127.0.0.1:9\n  scopes:")
    server = SERVER.replace("PORT", str(port)).replace("STORE", database)
    return head + server + rest[rest.index("providers:") :]


class Hosts:
    """An account with what Terraform makes for replicas, and the hosts that were started there."""

    def __init__(self, account: Account, database: str, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self._account = account
        self._folder = folder
        certificate = hosts_certificate(folder)
        answer = client(account.url, "secretsmanager").create_secret(
            Name="hosts", SecretString=certificate
        )
        account.s3.put_object(
            Bucket=account.bucket, Key="database-ca.pem", Body=DATABASE_CA.encode()
        )
        account.put_fleet_file(fleet_file(self.port, database))
        self._replica = {
            "certificate": answer["ARN"],
            "database_ca": "database-ca.pem",
            "port": self.port,
        }
        self.trust = ssl.create_default_context(
            cadata=certificate[certificate.index("-----BEGIN CERT") :]
        )

    def launch(self, name: str, address: str) -> Host:
        """Launch a host. It is not prepared."""
        return Host(self._account, name, self._replica, address)

    def controller(self, host: Host) -> ControllerProcess:
        """Return the controller of a host that was prepared, as systemd starts it."""
        file = host.run / "fleet.yaml"
        text = file.read_text().replace("0.0.0.0", host.address)
        file.chmod(0o600)
        file.write_text(text)
        lines = (host.run / "replica.env").read_text().splitlines()
        environment = dict(line.split("=", 1) for line in lines)
        environment |= credentials(self._account.url) | {"no_proxy": "127.0.0.1"}
        words = ["-m", "autoscaler.cli", "serve", "-c", str(file), "--log-format", "json"]
        url = f"https://{host.address}:{self.port}"
        log = self._folder / f"{host.address}.log"
        return ControllerProcess(words, url, log, environment)


@pytest_asyncio.fixture
async def hosts(moto: MotoProcess, tmp_path: Path, database: str) -> AsyncIterator[Hosts]:
    front = TerraformFront(moto.url, str(10**11 + secrets.randbelow(9 * 10**11)), lambda: ())
    await front.start()
    account = await asyncio.to_thread(Account, front.url, tmp_path, SECRETS)
    yield await asyncio.to_thread(Hosts, account, database, tmp_path)
    await front.close()


class Client:
    """Asks hosts through TLS, as the load balancer does, but with their certificate."""

    def __init__(self, session: aiohttp.ClientSession, hosts: Hosts) -> None:
        self._session = session
        self._trust = hosts.trust

    async def get(self, process: ControllerProcess, path: str, token: str) -> tuple[int, str]:
        """Return the status and the text of an answer; 0 without an answer."""
        headers = {"Authorization": f"Bearer {token}"}
        try:
            async with self._session.get(
                process.url + path, headers=headers, ssl=self._trust, server_hostname=DOMAIN
            ) as answer:
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, ""

    async def leads(self, process: ControllerProcess) -> bool:
        """Return whether a controller says that it leads."""
        status, text = await self.get(process, "/metrics", METRICS)
        return status == 200 and parse_metrics(text).get("autoscaler_leader") == 1

    async def until_leading(self, *processes: ControllerProcess) -> ControllerProcess:
        """Return the first of these controllers that leads."""
        async with asyncio.timeout(PATIENCE):
            while True:
                for process in processes:
                    assert process.running, process.log_end()
                    if await self.leads(process):
                        return process
                await asyncio.sleep(0.1)

    async def until_admin(self, process: ControllerProcess) -> None:
        """Wait until a controller answers operators. A replica that knows no leader yet answers 503."""
        async with asyncio.timeout(PATIENCE):
            while (await self.get(process, "/admin/machines", ADMIN))[0] != 200:
                assert process.running, process.log_end()
                await asyncio.sleep(0.1)


async def test_a_host_that_is_lost_is_replaced_while_the_other_one_leads(hosts: Hosts) -> None:
    async with contextlib.AsyncExitStack() as stack:
        client = Client(await stack.enter_async_context(aiohttp.ClientSession()), hosts)

        async def start(name: str, address: str) -> ControllerProcess:
            host = await asyncio.to_thread(hosts.launch, name, address)
            await host.start()
            stack.push_async_callback(host.close)
            # Beside the host that runs: a replica waits for no other one.
            await asyncio.to_thread(host.succeed, "prepare")
            assert (host.run / "database-ca.pem").read_text() == DATABASE_CA
            key = host.run / "tls" / "server.key"
            assert (key.stat().st_mode & 0o777, key.stat().st_uid) == (0o400, os.getuid())
            process = hosts.controller(host)
            await process.start()
            stack.push_async_callback(process.kill)
            return process

        first = await start("first", "127.0.0.2")
        second = await start("second", "127.0.0.3")
        leader = await client.until_leading(first, second)
        follower = second if leader is first else first
        await client.until_admin(follower)
        assert not await client.leads(follower)

        await leader.kill()
        assert await client.until_leading(follower) is follower
        await client.until_admin(follower)

        new = await start("new", "127.0.0.4")
        await client.until_admin(new)
        assert not await client.leads(new)
