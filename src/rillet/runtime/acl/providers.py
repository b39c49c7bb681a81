"""What the layer of commands provides to access control, which lies below it.

`commands.server.introspection` registers the categories of commands and their key accesses,
`commands.connection.client_admin` the line of CLIENT LIST for the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Providers:
    """Functions that the commands register; `load_commands` has set them all."""

    # The names of all categories that a version has, in Redis's order.
    category_names: Callable[[Any], tuple[str, ...]]
    # The categories of a command in a version.
    categories: Callable[[Any, Any], list[str]]
    # The access flags of each key specification of a command.
    accesses: Callable[[Any], list[str]]
    # The line of CLIENT LIST about a session.
    client_line: Callable[[Any], bytes]


PROVIDERS = Providers()

__all__ = ["PROVIDERS", "Providers"]
