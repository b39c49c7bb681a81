"""Script and StoredFunction: a Lua script of a store, and a function of a library, as functions of Python.

    take = store.script('''
        local left = tonumber(redis.call("GET", KEYS[1]) or "0") - tonumber(ARGV[1])
        if left < 0 then return nil end
        redis.call("SET", KEYS[1], left)
        return left
    ''')
    take(keys=["stock:42"], args=[3])

The script runs as one step: no other command comes between its commands. A call sends the SHA1 of the source (EVALSHA);
if the server does not have the script, it sends the source (EVAL). docs/scripts.md describes what a script can use.

    store.load_functions(library, replace=True)
    take = store.function("take")
    take(keys=["stock:42"], args=[3])

A library stays in the store, also in its files; docs/functions.md describes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha1
from typing import Any

from rillet.errors import CommandError
from rillet.store.arguments.argument_checks import encoded, flag, items_of, text_bytes
from rillet.store.arguments.encoding import Value, encode_name
from rillet.store.keys import CommandRunner


class Script:
    """A Lua script of a store: call it with keys and arguments."""

    def __init__(self, store: CommandRunner, source: str | bytes) -> None:
        self._store = store
        self.source = text_bytes(source, "source")
        self.sha = sha1(self.source, usedforsecurity=False).hexdigest()

    def __call__(self, keys: Iterable[str | bytes] = (), args: Iterable[Value] = ()) -> Any:
        """Run the script and return its value; raise CommandError if it fails. Cost: that of its commands."""
        words = _words(keys, args)
        try:
            return self._store.run([b"EVALSHA", self.sha.encode(), *words])
        except CommandError as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
        return self._store.run([b"EVAL", self.source, *words])


class StoredFunction:
    """A function of a library of Lua: call it with keys and arguments."""

    def __init__(self, store: CommandRunner, name: str | bytes) -> None:
        self._store = store
        self.name = encode_name(name, "name")

    def __call__(self, keys: Iterable[str | bytes] = (), args: Iterable[Value] = (), *, read_only: bool = False) -> Any:
        """Run the function and return its value; CommandError if it fails. read_only: only if it declares no-writes."""
        command = b"FCALL_RO" if flag(read_only, "read_only") else b"FCALL"
        return self._store.run([command, self.name, *_words(keys, args)])


def _words(keys: Iterable[str | bytes], args: Iterable[Value]) -> list[bytes]:
    """Return the number of keys, the keys and the arguments."""
    names = [encode_name(key, "one of keys") for key in items_of(keys, "keys", "keys")]
    return [b"%d" % len(names), *names, *(encoded(arg, "one of args") for arg in items_of(args, "args", "arguments"))]
