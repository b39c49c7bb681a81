"""rillet.follow of the master of a service that genuine Sentinels watch: it follows the master through failovers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import rillet
from rillet.errors import StoreTimeout
from tests.judge import free_port
from tests.replication.nodes import until
from tests.replication.sentinels import SERVICE, Deployment

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SECONDS = 240


class Failovers:
    """Moves the service of a deployment from one server to another."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        for number in range(3):  # no replica is ahead of another one by a PING
            with deployment.client(number) as client:
                client.config_set("repl-ping-replica-period", 3600)
        self.writes = 0

    def write(self, replicas: int) -> None:
        """Write to the master, and wait until so many replicas have everything."""
        self.writes += 1
        with self.deployment.client(self.deployment.master()) as client:
            client.set("n", self.writes)
            until(lambda: client.execute_command("WAIT", replicas, 1000) >= replicas, f"{replicas} replicas")

    def kill(self) -> None:
        """Kill the master, and wait until another server is promoted."""
        old = self.deployment.master()
        self.deployment.kill(old)
        self._moves_from(old)
        self.deployment.start(old)

    def exchange(self) -> None:
        """Let a sentinel promote a replica; the old master lives, and becomes a replica."""
        old = self.deployment.master()
        sentinel = self.deployment.sentinel().sentinels[0]
        until(lambda: sentinel.execute_command("SENTINEL FAILOVER", SERVICE), "the sentinel begins a failover")
        self._moves_from(old)
        with self.deployment.client(old) as client:
            until(lambda: client.info("replication").get("master_link_status") == "up", f"{old} follows")

    def _moves_from(self, old: int) -> None:
        until(lambda: self.deployment.master() not in (-1, old), f"another server than {old} is promoted")
        with self.deployment.client(self.deployment.master()) as client:
            client.config_set("repl-ping-replica-period", 3600)

    def port(self) -> int:
        """Return the port of the master."""
        return self.deployment.ports[self.deployment.master()]


def test_a_replica_follows_the_master(tmp_path: Path) -> None:
    with Deployment(tmp_path / "servers") as deployment:
        moves = Failovers(deployment)
        moves.write(2)
        with rillet.follow(deployment.url(), tmp_path / "replica") as replica, rillet.follow(
            deployment.url(), keys=["n"]
        ) as some:
            assert replica.execute("GET", "n") == b"1"
            assert SERVICE in repr(replica)
            changes = replica.changes(timeout=0)
            for number, move in enumerate((moves.kill, moves.kill, moves.exchange), 1):
                moves.write(4)
                move()
                moves.write(2)
                for store in (replica, some):
                    store.wait_synced(SECONDS)
                    assert store.execute("GET", "n") == b"%d" % moves.writes
                    # Sentinels publish on a master that they have deposed: a replica may be ahead of the new one.
                    assert store.link.full_syncs == 1 or move == moves.exchange
                    assert store.link.reconnections >= number
                    assert f"master_port:{moves.port()}\r\n".encode() in store.execute("INFO", "replication")
                # Both replicas of the service are there again, so that the next failover finds one.
                moves.write(4)
            seen = [one.words[2] for one in changes] if replica.link.full_syncs == 1 else []
            assert seen in ([b"%d" % number for number in range(2, moves.writes + 1)], [])
            position = replica.position
        moves.write(2)
        with rillet.follow(deployment.url(), tmp_path / "replica") as replica:
            replica.wait_synced(SECONDS)
            assert (replica.link.full_syncs, replica.execute("GET", "n")) == (0, b"%d" % moves.writes)
            assert [one.words[2] for one in replica.changes(position, timeout=0)] == [b"%d" % moves.writes]


def test_the_asyncio_form(tmp_path: Path) -> None:
    async def use(deployment: Deployment) -> None:
        moves = Failovers(deployment)
        async with rillet.follow(deployment.url(), timeout=0).aio() as replica:
            await replica.wait_synced(SECONDS)
            for move in (moves.kill, moves.exchange):
                await asyncio.to_thread(moves.write, 3)
                await asyncio.to_thread(move)
                await asyncio.to_thread(moves.write, 1)
                await replica.wait_synced(SECONDS)
                assert await replica.execute("GET", "n") == b"%d" % moves.writes
                assert replica.link.full_syncs == 1 or move == moves.exchange
                await asyncio.to_thread(moves.write, 3)

    with Deployment(tmp_path, ("rillet", "redis", "rillet")) as deployment:
        asyncio.run(use(deployment))


def test_a_service_that_does_not_exist(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment:
        with pytest.raises(StoreTimeout, match="does not know the service"):
            rillet.follow(deployment.url().replace(SERVICE, "other"), timeout=1)
        dead = deployment.url().replace(str(deployment.watchers[0]), str(free_port()), 1)
        with rillet.follow(dead) as replica:
            assert replica.connected
