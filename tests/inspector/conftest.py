"""An inspector over a store or a server, driven by HTTP as a page or curl does; data for its views."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import rillet
from rillet.inspector.security import HEADER
from rillet.inspector.serving import Inspector, running
from tests.inspector.pages import axe_source
from tools.check_site import browser

Open = Callable[..., "Client"]


class Client:
    """A client with the token."""

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        self.http = httpx.Client(base_url=inspector.base, trust_env=False, timeout=60,
                                 headers={"authorization": f"Bearer {inspector.token}"})  # fmt: skip

    def get(self, path: str, status: int = 200, **query: Any) -> Any:
        answer = self.http.get(f"/api/{path}", params=query)
        assert answer.status_code == status, answer.text
        return answer.json()

    def lines(self, path: str, **query: Any) -> list[Any]:
        answer = self.http.get(f"/api/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def post(self, path: str, status: int = 200, **body: Any) -> Any:
        answer = self.http.post(f"/api/{path}", json=body, headers={HEADER: "1"})
        assert answer.status_code == status, answer.text
        return answer.json()


@contextmanager
def inspecting(where: str | Path, **options: Any) -> Iterator[Client]:
    """Serve an inspector on a free port, and yield a client of it."""
    with running(str(where), **options) as inspector:
        client = Client(inspector)
        try:
            yield client
        finally:
            client.http.close()


@pytest.fixture
def inspect() -> Iterator[Open]:
    """Return a function that serves an inspector until the test ends."""
    with ExitStack() as stack:
        yield lambda where, **options: stack.enter_context(inspecting(where, **options))


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    found = browser()
    found.set_window_size(1360, 1043)
    found.set_script_timeout(120)  # axe-core takes half a minute beside other tests
    yield found
    found.quit()


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    source = axe_source(str(tmp_path_factory.mktemp("axe")))
    if source is None:
        pytest.skip("needs npm and a package registry for axe-core")
    return source


def fill(store: rillet.Store) -> None:
    """Add two streams, a group with a stuck consumer, and one key of each other type and encoding."""
    orders = store.stream("orders")
    orders.add_many([
        (f"{1_795_000_000_000 + n * 1000}-0",
         {"n": n, "customer": f"c{n % 7}", "total": f"{n * 1.5}", "lines": json.dumps({"sku": n, "tags": ["a", {}]})})
        for n in range(250)
    ])  # fmt: skip
    orders.delete("1795000003000-0", "1795000004000-0")
    billing = orders.group("billing")
    billing.consumer("stuck").read(20)
    billing.consumer("busy").read(5)
    store.stream("small").add({"f": "v"}, id="1-1")
    store.execute("SET", "text", "hello")
    store.execute("RPUSH", "list", *range(40))
    store.execute("SADD", "numbers", 5, -1, 70000)
    store.execute("SADD", "words", "a", "b")
    store.execute("HSET", "hash", "name", "ada", "7", "x")
    store.execute("HSET", "big", *(word for n in range(600) for word in (f"field{n}", n)))
    store.execute("ZADD", "scores", 1.5, "a", 2, "b")
    store.execute("ZADD", "ranks", *(word for n in range(300) for word in (n, f"member{n}")))
