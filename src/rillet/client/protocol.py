"""The protocol of a connection to a server, without any I/O.

    connection = ClientProtocol(address)
    transport.write(connection.open())             AUTH and SELECT, if the address requires them
    transport.write(pack(b"XLEN", b"s"))
    connection.feed(transport.read())              any number of bytes
    while (reply := connection.next_reply()) is not INCOMPLETE: ...

The class holds no socket, clock or thread, so a blocking socket, an asyncio transport and a test can all drive it.
Replies arrive in the order of the commands. The replies to the opening commands are consumed here, and an error among
them is raised as ConnectorError.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rillet.client.address import Address
from rillet.client.errors import ConnectorError, refused
from rillet.errors import ProtocolError
from rillet.protocol.command_parser import pack_command
from rillet.protocol.reply_parser import INCOMPLETE, ReplyError, ReplyParser


def pack(*words: bytes) -> bytes:
    """Return the RESP encoding of one command."""
    return pack_command(list(words))


def pack_all(commands: Iterable[Sequence[bytes]]) -> bytes:
    """Return the concatenated RESP encoding of several commands."""
    return b"".join([pack_command(list(words)) for words in commands])


class ClientProtocol:
    """Converts commands to bytes and bytes to replies, and opens a connection (AUTH, SELECT)."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._parser = ReplyParser()
        self.feed: Callable[[bytes], object] = self._parser.feed  # passes received bytes to the parser
        self._opening: deque[str] = deque()

    def open(self) -> bytes:
        """Return the commands with which the connection begins; may be empty."""
        commands: list[tuple[bytes, ...]] = []
        address = self.address
        if address.user is not None or address.password is not None:
            user = () if address.user is None else (address.user.encode(),)
            commands.append((b"AUTH", *user, (address.password or "").encode()))
        if address.protocol == 3:
            commands.append((b"HELLO", b"3"))
        if address.db:
            commands.append((b"SELECT", b"%d" % address.db))
        self._opening.extend(words[0].decode() for words in commands)
        return pack_all(commands)

    @property
    def opened(self) -> bool:
        """True after the replies to all opening commands have arrived."""
        return not self._opening

    def next_reply(self) -> Any:
        """Return the next reply, a ReplyError for an error reply, INCOMPLETE if more bytes are required.

        Raise ConnectorError if the server refused an opening command, or if the bytes are not RESP.
        """
        try:
            reply = self._parser.next()
            while self._opening and reply is not INCOMPLETE:
                command = self._opening.popleft()
                if isinstance(reply, ReplyError):
                    raise refused(self.address, command, str(reply))
                reply = self._parser.next()
        except ProtocolError as error:
            hint = " (if the server requires TLS, the url begins with rediss://)" if self.address.tls is None else ""
            text = f"rillet: {self.address} does not answer in Redis's protocol{hint}: {error}"
            raise ConnectorError(text) from error
        return reply
