"""InProcessPages: lets client.pages.RangeReader read from the engine in this process as from a server."""

from __future__ import annotations

from collections.abc import Callable

from rillet.client.address import Address
from rillet.client.servers import ClientOptions
from rillet.columns.receive_buffer import ReceiveBuffer

Execute = Callable[[bytes, ReceiveBuffer], bytes]


class InProcessPages:
    """The connection that RangeReader sees: it sends commands and receives the bytes of their replies."""

    replica = lost = False
    waits = False
    options = ClientOptions(Address())
    address = "this process"

    def __init__(self, execute_packed: Execute) -> None:
        self._execute_packed = execute_packed
        self._requests: list[bytes] = []

    def connection(self, key: bytes) -> InProcessPages:
        """Return this object as the connection for a key: the engine serves every key."""
        return self

    readers = connection

    def send(self, data: bytes) -> None:
        """Keep commands in RESP encoding for `receive`."""
        self._requests.append(data)

    def receive(self, decoder: ReceiveBuffer) -> None:
        """Run the commands of the oldest `send`; the replies become the decoder's buffer, without a copy."""
        self._execute_packed(self._requests.pop(0), decoder)

    def redirected(self, key: bytes, error: str) -> bool:
        """Return False: the engine redirects nothing."""
        return False

    def forget(self, connection: object) -> None:
        """Drop the commands that did not run yet."""
        self._requests.clear()
