"""BullMQ, ioredis and node-redis, in Node: each script of tests/frameworks/node asserts its own outcomes."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS", "RILLET_NODE_MODULES")


@pytest.mark.parametrize("name", ["bullmq", "ioredis", "node_redis", "node_redis_cache"])
def test_a_script(served, name):
    assert f"{name.replace('_', '-')} done" in served.node(f"{name}.mjs")
