"""Which URLs open a store, and which are refused."""

from pathlib import Path

import pytest

from autoscaler.controller.ports.store import Delivery, StoreError
from autoscaler.store.opening import is_shared, open_shared_store, open_store
from tests.store.postgresql_server import PostgresqlServer


async def test_open_store_accepts_sqlite_urls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///relative.db", f"sqlite:///{tmp_path}/absolute.db"):
        store = await open_store(url)
        assert await store.accept(Delivery("a", "workflow_job", 100.0, b"{}"))
        await store.close()
    assert (tmp_path / "relative.db").exists()
    assert (tmp_path / "absolute.db").exists()


async def test_open_shared_store_accepts_postgresql_urls(server: PostgresqlServer) -> None:
    store = await open_shared_store(server.database())
    assert await store.accept(Delivery("a", "workflow_job", 100.0, b"{}"))
    await store.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://autoscaler:hunter2@db/x?sslmod=y", "not the URL of a PostgreSQL database"),
        ("postgres://autoscaler:hunter2@db/x", "postgresql://USER@HOST/DATABASE"),
        ("sqlite://", "write sqlite:///PATH"),
        ("sqlite:///", "write sqlite:///PATH"),
        ("sqlite:///:memory:", "write sqlite:///PATH"),
        ("sqlite:///a.db?mode=ro", "write sqlite:///PATH"),
        ("mysql://root:hunter2@db/x", "write sqlite:///PATH"),
        ("state.db", "write sqlite:///PATH"),
    ],
)
async def test_other_urls_are_refused_without_showing_them(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as raised:
        await (open_shared_store if is_shared(url) else open_store)(url)
    assert "hunter2" not in str(raised.value)
