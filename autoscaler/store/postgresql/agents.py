"""Keeps the agents of this and of earlier controller versions, for all replicas.

A machine asks for the agent that its user data names, which another version may have launched. See
`server.machines.agents`, which keeps them beside a SQLite file.
"""

import hashlib

from autoscaler.controller.ports.replicas import MOST_AGENTS
from autoscaler.store.database import Connection


def keep_agent(connection: Connection, agent: bytes) -> tuple[bytes, ...]:
    """Store an agent. Return the other ones, the latest first. Deletes all but the latest `MOST_AGENTS`."""
    own = hashlib.sha256(agent).hexdigest()
    connection.write(
        f"INSERT INTO agents (sha256, kept_at, body) VALUES (:own, {connection.clock}, :body) "  # noqa: S608 - the clock is a constant
        "ON CONFLICT (sha256) DO UPDATE SET kept_at = excluded.kept_at",
        own=own,
        body=agent,
    )
    found = connection.read(
        "SELECT sha256, body FROM agents WHERE sha256 <> :own ORDER BY kept_at DESC", own=own
    )
    kept, old = found[: MOST_AGENTS - 1], found[MOST_AGENTS - 1 :]
    for sha256, _ in old:
        connection.write("DELETE FROM agents WHERE sha256 = :sha256", sha256=sha256)
    return tuple(bytes(body) for sha256, body in kept if hashlib.sha256(body).hexdigest() == sha256)
