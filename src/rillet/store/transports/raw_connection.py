"""RawLine: a connection of redis-py whose replies are read as bytes, for what must not become objects.

redis-py connects, logs in, and speaks TLS; it finds the node of a key in a cluster. Between two commands its parser
holds nothing, so the bytes of a reply can be taken from the socket by whoever sent the command:

    with RawLine(link, key) as line:
        line.send(words)
        line.receive(decoder)        into the decoder's own buffer

A line that is left before the last reply was read is closed, so nobody else gets what belongs to this one.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rillet.errors import StoreClosed, StoreError
from rillet.protocol.command_parser import pack_command
from rillet.store.transports.cluster import ClusterTransport
from rillet.store.transports.transport import RedisTransport

RECEIVE = 1 << 18


class RawConnection:
    """A connection for a while; a context manager, used by one thread."""

    def __init__(self, link: RedisTransport, key: bytes) -> None:
        self.link = link
        self.key = key
        self.whole = True  # no reply is under way

    def __enter__(self) -> RawConnection:
        import redis

        if self.link.closed:
            raise StoreClosed("the store is closed")
        client = self.link.client
        try:
            if isinstance(self.link, ClusterTransport):
                client = client.get_redis_connection(self.link.node_of(self.key))
            self._pool: Any = client.connection_pool
            try:
                self._connection: Any = self._pool.get_connection()
            except TypeError:  # before redis-py 5.3
                self._connection = self._pool.get_connection("XRANGE")
        except (redis.exceptions.RedisError, OSError) as error:
            raise self.link.failed(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.whole:
            self._connection.disconnect()
        self._pool.release(self._connection)

    def send(self, words: list[bytes]) -> None:
        """Send one command."""
        self.send_packed(pack_command(words))

    def send_packed(self, data: bytes | bytearray) -> None:
        """Send packed commands."""
        self.whole = False
        try:
            self._connection._sock.sendall(data)
        except (OSError, AttributeError) as error:  # redis-py takes the socket away when the store is closed
            raise self._lost(error) from error

    def receive(self, decoder: Any) -> None:
        """Wait for more of the reply and put it into the decoder's buffer; the decoder knows where it ends."""
        try:
            with decoder.space(RECEIVE) as room:
                received = self._connection._sock.recv_into(room)
        except (OSError, AttributeError) as error:
            raise self._lost(error) from error
        if not received:
            raise self._lost(ConnectionResetError("closed by the server"))
        decoder.filled(received)

    def read(self) -> bytes:
        """Wait for more of the replies and return it."""
        try:
            received: bytes = self._connection._sock.recv(RECEIVE)
        except (OSError, AttributeError) as error:
            raise self._lost(error) from error
        if not received:
            raise self._lost(ConnectionResetError("closed by the server"))
        return received

    def _lost(self, error: Exception) -> StoreError:
        return self.link.failed(error)
