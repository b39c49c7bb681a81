"""The server or the nodes of a cluster behind one set of options, by key.

    with Servers(options) as servers:
        servers.call(b"events", b"XINFO", b"STREAM", b"events")      # one command of a key, wherever the key lives
        connection = servers.connection(b"events")                    # the bulk readers' and writers' way
        for connection in servers.masters(): ...                      # every node that holds keys

Connections are made when they are needed and kept until `close`. A server that redirects is followed by `call`
and `calls`; who uses a connection himself gives an error reply to `redirected` and asks for the connection again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from rillet.spark.connection import Connection, endpoint
from rillet.spark.options import Options


class Servers:
    """Connections by key; a context manager, used by one thread."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._kept: Connection | None = None

    def connection(self, key: bytes) -> Connection:
        """Return the connection to the node that serves a key; ConnectionLost where it cannot be reached."""
        if self._kept is None:
            self._kept = Connection(endpoint(self.options), self.options.timeout)
        return self._kept

    def masters(self) -> Iterator[Connection]:
        """Yield a connection to every node that holds keys."""
        yield self.connection(b"")

    def by_node(self, keys: Sequence[bytes]) -> list[tuple[Connection, list[bytes]]]:
        """Return the keys together with the connection to the node that serves them."""
        return [(self.connection(keys[0]), list(keys))] if keys else []

    def call(self, key: bytes, *words: bytes) -> Any:
        """Send one command about a key and return its reply; an error reply raises ConnectorError."""
        return self.calls(key, [words])[0]

    def calls(self, key: bytes, commands: Sequence[Sequence[bytes]]) -> list[Any]:
        """Send commands about a key, all at once; the first error reply raises ConnectorError."""
        return self.connection(key).calls(commands)

    def redirected(self, key: bytes, error: str) -> bool:
        """Learn from an error reply where a key lives now; False where it says nothing of that kind."""
        return False

    def forget(self, connection: Connection) -> None:
        """Close a connection that was lost; the next use of its keys makes another."""
        connection.close()
        if self._kept is connection:
            self._kept = None

    def close(self) -> None:
        """Close every connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def __enter__(self) -> Servers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
