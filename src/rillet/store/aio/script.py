"""The asyncio form of rillet.store.script: AsyncScript, AsyncStoredFunction.

Made from store/script.py by `python -m tools.make_aio`; edit that file, then run the command.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha1
from typing import Any

from rillet.errors import CommandError
from rillet.store.aio.keys import AsyncCommandRunner
from rillet.store.arguments.argument_checks import flag, text_bytes
from rillet.store.arguments.encoding import Value, encode_name
from rillet.store.script import _words


class AsyncScript:
    """A Lua script of a store: call it with keys and arguments."""

    def __init__(self, store: AsyncCommandRunner, source: str | bytes) -> None:
        self._store = store
        self.source = text_bytes(source, "source")
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest()

    async def __call__(self, keys: Iterable[str | bytes] = (), args: Iterable[Value] = ()) -> Any:
        """Run the script and return its value; raise CommandError if it fails. Cost: that of its commands."""
        words = _words(keys, args)
        try:
            return await self._store.run([b"EVALSHA", self.sha.encode(), *words])
        except CommandError as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
        return await self._store.run([b"EVAL", self.source, *words])


class AsyncStoredFunction:
    """A function of a library of Lua: call it with keys and arguments."""

    def __init__(self, store: AsyncCommandRunner, name: str | bytes) -> None:
        self._store = store
        self.name = encode_name(name, "name")

    async def __call__(self, keys: Iterable[str | bytes] = (), args: Iterable[Value] = (), *,
                       read_only: bool = False) -> Any:  # fmt: skip
        """Run the function and return its value; CommandError if it fails. read_only: only if it declares no-writes."""
        command = b"FCALL_RO" if flag(read_only, "read_only") else b"FCALL"
        return await self._store.run([command, self.name, *_words(keys, args)])
