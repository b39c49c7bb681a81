"""The reply lines of another server to the commands of MIGRATE."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Replies:
    """The replies to the commands that prepare a connection, and to those about keys.

    broken: why the connection ended early, "" otherwise.
    """

    setup: list[bytes]
    keys: list[bytes]
    broken: str = ""


__all__ = ["Replies"]
