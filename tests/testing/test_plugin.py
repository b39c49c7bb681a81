"""The pytest plugin, in projects of its users: each test here runs pytest in a subprocess."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tomllib

import rillet
from tests.package.test_modes import ROOT

# Plugins that these projects do not use, and that take longer to import than their tests to run.
WITHOUT = [word for name in ("hypothesispytest", "xdist", "timeout", "anyio") for word in ("-p", f"no:{name}")]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs pytest on a project, with the entry point of pyproject.toml as if installed."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    installed = tmp_path / "installed" / "rillet-0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: rillet\nVersion: 0\n", encoding="utf-8")
    lines = ["[pytest11]", *(f"{name} = {place}" for name, place in entries["pytest11"].items())]
    (installed / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    package = Path(rillet.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(installed.parent), str(package)))}
    environment.pop("PYTEST_ADDOPTS", None)

    def run_pytest(*arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
        project = tmp_path / "project"
        project.mkdir(exist_ok=True)
        (project / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
        for name, text in files.items():
            (project / f"{name}.py").write_text(text, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *WITHOUT, *arguments],
            cwd=project, env=environment, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    return run_pytest


def test_the_fixtures_of_a_test_share_one_empty_store(run: Run) -> None:
    done = run(test_it='''
import asyncio
import redis

def test_all(rillet_store, rillet_redis, rillet_redis_async, rillet_url):
    assert isinstance(rillet_redis, redis.Redis) and isinstance(rillet_redis_async, redis.asyncio.Redis)
    rillet_store.execute("SET", "k", "v")
    assert rillet_redis.get("k") == b"v"
    async def main():
        return await rillet_redis_async.get("k")
    assert asyncio.run(main()) == b"v"
    with redis.Redis.from_url(rillet_url) as client:
        assert client.get("k") == b"v"

def test_the_next_store_is_empty(rillet_redis):
    assert rillet_redis.dbsize() == 0

def test_a_pubsub_that_was_not_closed(rillet_redis, rillet_redis_async):
    pubsub = rillet_redis.pubsub()
    pubsub.subscribe("a")
    async def main():
        await rillet_redis_async.pubsub().subscribe("b")
        asyncio.create_task(rillet_redis_async.blpop(["l"], 0))
        await asyncio.sleep(0)
    asyncio.run(main())
''')  # fmt: skip
    assert "3 passed" in done.stdout, done.stdout
    assert done.returncode == 0


def test_settings_and_options_come_from_a_conftest(run: Run) -> None:
    done = run(conftest='''
import pytest

@pytest.fixture
def rillet_settings():
    return {"compat": "7.0", "databases": 3}

@pytest.fixture
def rillet_redis_options():
    return {"decode_responses": True, "db": 2}
''', test_it='''
import asyncio

def test_settings(rillet_store, rillet_redis, rillet_redis_async):
    assert rillet_redis.info("server")["redis_version"].startswith("7.0")
    rillet_redis.set("k", "v")
    assert rillet_redis.get("k") == "v"
    assert rillet_store.execute("EXISTS", "k") == 0
    async def main():
        return await rillet_redis_async.get("k")
    assert asyncio.run(main()) == "v"
''')  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout


def test_a_clock_that_the_test_moves(run: Run) -> None:
    done = run(test_it='''
import time

def test_expiry(rillet_clock, rillet_redis):
    rillet_redis.set("k", "v", ex=3600)
    rillet_clock.advance(3599)
    assert rillet_redis.ttl("k") == 1
    rillet_clock.advance(1)
    assert rillet_redis.get("k") is None

def test_without_the_clock_time_passes(rillet_redis):
    rillet_redis.set("k", "v", px=1)
    while rillet_redis.exists("k"):
        time.sleep(0.001)
''')  # fmt: skip
    assert "2 passed" in done.stdout, done.stdout


def test_a_project_that_does_not_use_it_does_not_load_the_store(run: Run) -> None:
    done = run(test_it='''
import sys

def test_nothing():
    names = sorted(name for name in sys.modules if name.partition(".")[0] in ("rillet", "redis", "xxhash"))
    assert names == ["rillet", "rillet.testing", "rillet.testing.plugin"]
''')  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout


def test_without_the_plugin(run: Run) -> None:
    done = run("-p", "no:rillet", test_it='''
import sys

def test_nothing():
    assert "rillet" not in sys.modules

def test_fixture(rillet_store):
    pass
''')  # fmt: skip
    assert "1 passed, 1 error" in done.stdout, done.stdout
    assert "fixture 'rillet_store' not found" in done.stdout


def test_the_fixtures_are_listed_with_their_purpose(run: Run) -> None:
    done = run("--fixtures", test_it="")
    for name in ("rillet_store", "rillet_redis", "rillet_redis_async", "rillet_url", "rillet_clock"):
        assert name in done.stdout




def test_clients_that_the_code_makes_itself(run: Run) -> None:
    """The forms of docs/testing.md."""
    shop = """
import redis
from redis import Redis

client = redis.Redis()

def place(connection): return connection.xadd("orders", {"n": 1})
def by_options(): return redis.Redis(host="internal", port=6380, decode_responses=True)
def by_name(): return Redis(host="internal")
def by_url(): return redis.from_url("redis://internal/0", decode_responses=True)
def by_position(): return redis.Redis("internal", 6380, ssl=True)
async def asynchronous(): return await redis.asyncio.Redis(host="internal").xlen("orders")
"""
    done = run(shop=shop, test_shop='''
import asyncio
import shop

def test_options(rillet_store, monkeypatch):
    monkeypatch.setattr("redis.Redis", rillet_store.redis)
    assert isinstance(shop.place(shop.by_options()), str)
    monkeypatch.setattr("redis.asyncio.Redis", rillet_store.redis_async)
    assert asyncio.run(shop.asynchronous()) == 1

def test_others(rillet_store, rillet_redis, monkeypatch):
    monkeypatch.setattr("shop.Redis", rillet_store.redis)
    shop.place(shop.by_name())
    monkeypatch.setattr("redis.Redis.from_url", lambda url, **options: rillet_store.redis(**options))
    shop.place(shop.by_url())
    monkeypatch.setattr("redis.Redis", lambda *args, **options: rillet_redis)
    shop.place(shop.by_position())
    monkeypatch.setattr("shop.client", rillet_redis)
    shop.place(shop.client)
    assert rillet_redis.xlen("orders") == 4

def test_a_failed_job_is_tried_again(rillet_store, rillet_clock):
    def fail(message): raise OSError
    rillet_store.stream("jobs").add({"job": 1})
    worker = rillet_store.stream("jobs").group("workers").consumer("one")
    worker.run(fail, stop_when_empty=True)
    assert worker.group.pending_count() == 1
    rillet_clock.advance(60)
    worker.run(print, stop_when_empty=True)
    assert worker.group.pending_count() == 0
''')  # fmt: skip
    assert "3 passed" in done.stdout, done.stdout
