"""Genuine Sentinels over Redis and rillet: failovers under load, without the loss of an acknowledged write."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import rillet
from rillet.spark.options import parse
from tests.judge import free_port
from tests.replication.nodes import until
from tests.replication.sentinels import SERVICE, Deployment, writers

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
FAILOVERS = int(os.environ.get("RILLET_FAILOVERS", "10"))


def test_failovers_lose_no_acknowledged_write(tmp_path: Path) -> None:
    promoted = []
    with Deployment(tmp_path) as deployment, writers(deployment) as both:
        for _ in range(FAILOVERS):
            until(deployment.in_sync, "two replicas follow the master")
            for writer in both:
                writer.progresses()
            old = deployment.master()
            deployment.kill(old)
            acknowledged = [writer.acknowledged for writer in both]
            until(lambda old=old: deployment.master() not in (-1, old), f"another server than {old} is promoted")  # type: ignore[misc]
            promoted.append(deployment.master())
            deployment.start(old)
            until(deployment.in_sync, f"{old} follows {promoted[-1]}")
            for writer in both:
                writer.progresses()
            with deployment.client(deployment.master()) as client:
                for writer, before in zip(both, acknowledged, strict=True):
                    assert int(client.get(writer.name) or 0) > before
    assert any(deployment.kinds[number] == "rillet" for number in promoted)


def test_a_store_finds_the_master(tmp_path: Path) -> None:
    with Deployment(tmp_path) as deployment:
        with rillet.connect(deployment.url()) as store, store.redis() as client:
            store.execute("SET", "a", "1")
            assert client.get("a") == b"1"
            assert SERVICE in str(store)

            async def ask() -> object:
                async with rillet.connect(deployment.url()).aio() as other:
                    return await other.execute("GET", "a")

            assert asyncio.run(ask()) == b"1"
        with pytest.raises(rillet.NotSent, match="does not know the service"), rillet.connect(
            deployment.url().replace(SERVICE, "other")
        ) as store:
            store.execute("PING")
        assert parse({"url": deployment.url(), "stream": "s"}).address().port in deployment.ports
        dead = deployment.url().replace(str(deployment.watchers[0]), str(free_port()), 1)
        with rillet.connect(dead) as store:
            assert store.execute("GET", "a") == b"1"
