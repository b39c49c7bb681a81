"""Commands that a server refuses for a moment are sent again without changing the order of a key's commands."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from rillet.client.errors import ConnectorError  # noqa: E402
from rillet.spark.tables import senders  # noqa: E402
from tests.judge import redis_binary, running_redis  # noqa: E402
from tests.spark.tables.tables import write  # noqa: E402
from tests.variants import long  # noqa: E402

pytestmark = pytest.mark.slow
WRITES = (b"DEL", b"HSET", b"HDEL", b"SET", b"RPUSH", b"ZADD", b"PEXPIRE", b"HINCRBY")


class Loading:
    """A server in front of a redis-server: it answers LOADING to those writes whose number `refuses` selects."""

    def __init__(self, port: int) -> None:
        self.behind = port
        self.refuses: Callable[[int], bool] = lambda number: False
        self.writes = 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self.behind)) as behind:
            requests, replies = client.makefile("rb"), behind.makefile("rb")
            while line := requests.readline():
                words, data = [], line
                for _ in range(int(line[1:])):
                    head = requests.readline()
                    body = requests.read(int(head[1:]) + 2)
                    words.append(body[:-2])
                    data += head + body
                if words[0] in WRITES:
                    with self.lock:
                        self.writes += 1
                        refused = self.refuses(self.writes)
                    if refused:
                        client.sendall(b"-LOADING Redis is loading the dataset in memory\r\n")
                        continue
                behind.sendall(data)
                client.sendall(_reply(replies))


def _reply(replies: Any) -> bytes:
    line: bytes = replies.readline()
    if line[:1] == b"$" and line != b"$-1\r\n":
        return line + bytes(replies.read(int(line[1:]) + 2))
    if line[:1] in b"*%":
        count = int(line[1:]) * (2 if line[:1] == b"%" else 1)
        return line + b"".join(_reply(replies) for _ in range(count))
    return line


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Any, Loading]]:
    if redis_binary() is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with running_redis() as redis:
        loading = Loading(redis.port)
        yield redis, loading
        loading.listener.close()


@pytest.fixture
def client(started: tuple[Any, Loading]) -> Iterator[Any]:
    with started[0].client() as client:
        client.flushall()
        yield client


@pytest.fixture
def loading(started: tuple[Any, Loading]) -> Loading:
    started[1].writes = 0
    return started[1]


def test_later_commands_of_the_key_are_sent_again(client: Any, loading: Loading) -> None:
    loading.refuses = lambda number: number == 1
    write(pa.table({"key": ["1"], "name": ["Ada"]}), overwrite=True, url=loading.url, type="hash", keyPrefix="u:")
    assert client.execute_command("HGETALL", "u:1") == [b"name", b"Ada"]
    loading.writes = 0
    write(pa.table({"key": ["1", "1"], "value": ["old", "new"]}), url=loading.url, type="string", keyPrefix="s:")
    assert client.get("s:1") == b"new"


@pytest.mark.parametrize("every", [3, *long(2, 7)])
def test_the_last_row_of_each_key_wins(
    client: Any, loading: Loading, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """The chunks are small, so a later chunk of a key is under way when a command of an earlier one is refused."""
    monkeypatch.setattr(senders, "CHUNK", 300)
    loading.refuses = lambda number: 250 < number <= 300 and number % every == 0
    numbers = range(300)
    rows = pa.table({"key": [f"{n % 13}" for n in numbers], "value": [f"{n}" for n in numbers]})
    write(rows, url=loading.url, type="string", keyPrefix="s:")
    assert [client.get(f"s:{k}") for k in range(13)] == [b"%d" % max(n for n in numbers if n % 13 == k)
                                                         for k in range(13)]  # fmt: skip
    loading.writes = 0
    loading.refuses = lambda number: 850 < number <= 900 and number % every == 0
    write(rows, overwrite=True, url=loading.url, type="hash", keyPrefix="h:", ttl="100")
    assert [client.execute_command("HGETALL", f"h:{k}") for k in range(13)] == [
        [b"value", b"%d" % max(n for n in numbers if n % 13 == k)] for k in range(13)
    ]
    assert all(0 < client.ttl(f"h:{k}") <= 100 for k in range(13))


def test_elements_in_another_order_are_an_error(client: Any, loading: Loading) -> None:
    options: dict[str, Any] = {"url": loading.url, "type": "list", "keyPrefix": "l:", "exactlyOnce": "none"}
    loading.refuses = lambda number: number == 1
    with pytest.raises(ConnectorError, match="^rillet: .* refused a command for the list 'l:1' for a moment, and exec"):
        write(pa.table({"key": ["1", "1"], "value": ["a", "b"]}), **options)
    loading.writes = 0
    loading.refuses = lambda number: number <= 3
    write(pa.table({"key": ["2", "2", "3"], "value": ["a", "b", "c"]}), **options)
    assert client.lrange("l:2", 0, -1) == [b"a", b"b"]
    assert client.lrange("l:3", 0, -1) == [b"c"]
