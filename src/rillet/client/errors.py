"""The errors of the Redis client.

    RilletError
    ├── AddressError            a url is malformed
    └── ConnectorError          a server refused a command, or cannot be reached
        └── ConnectionLost      the connection broke or was never made; the request may be sent again
            ├── StaysAway       the server was lost and did not return within the timeout
            └── TimedOut        a connected server did not answer within the timeout

Each error is one sentence that names the server and the remedy, so the first line of Spark's exception is enough.
No sentence contains a password or a whole url, because a url may contain a password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.errors import RilletError

if TYPE_CHECKING:
    from typing import Self

    from rillet.client.address import Address


class AddressError(RilletError):
    """A url is malformed; the text does not contain the url."""


class ConnectorError(RilletError):
    """Reading from or writing to a server failed. `line` is the server's error reply, if there was one."""

    def __init__(self, text: str, line: str = "") -> None:
        super().__init__(text)
        self.line = line

    def __reduce__(self) -> tuple[type[ConnectorError], tuple[str, str]]:
        return type(self), (str(self), self.line)


class ConnectionLost(ConnectorError):
    """The connection broke, or could not be made. sent: False if the server cannot have received the request."""

    sent = True

    @classmethod
    def before(cls, text: str) -> Self:
        """Return the error for a request that was not sent."""
        error = cls(text)
        error.sent = False
        return error


class StaysAway(ConnectionLost):
    """A server did not return within the timeout."""


class TimedOut(ConnectionLost):
    """A server did not answer within the timeout for replies."""


def refusal(address: Address, command: str, line: str) -> str:
    """Return the sentence that reports a server's error reply to a command."""
    prefix = line.partition(" ")[0]
    if command == "AUTH":
        rejected = "the password" if address.user is None else f"the user {address.user!r} or the password"
        return f"rillet: {address} refused {rejected}: {line}"
    if prefix == "NOAUTH":
        return f"rillet: {address} requires a password (in the url or as option password): {line}"
    if prefix == "NOPERM":
        return f"rillet: {address} does not permit {address.user or 'the default user'} to run {command}: {line}"
    if prefix in ("MOVED", "ASK") and not address.seeds:
        return f"rillet: {address} is a node of a cluster: use redis+cluster:// in the url: {line}"
    if prefix == "LOADING":
        return f"rillet: {address} is still loading its data: {line}"
    if prefix == "MASTERDOWN":
        return f"rillet: {address} is a replica that has lost its master: {line}"
    return f"rillet: {address} refused {command}: {line}"


def refused(address: Address, command: str, line: str) -> ConnectorError:
    """Return the error for a server's error reply to a command."""
    return ConnectorError(refusal(address, command, line), line)
