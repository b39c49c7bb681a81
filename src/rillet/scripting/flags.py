"""The first line of a script: its engine and its flags (Redis: eval.c, evalExtractShebangFlags).

    #!lua flags=no-writes,allow-stale

A script without such a line runs in the mode of older servers: whether a command may run is decided command by command.
"""

from __future__ import annotations

from typing import NamedTuple

from rillet.errors import CommandError
from rillet.protocol.command_parser import split_args

NO_WRITES = 1
ALLOW_OOM = 2
ALLOW_STALE = 4
NO_CLUSTER = 8
ALLOW_CROSS_SLOT = 16
COMPAT_MODE = 32
"""The script declares no flags: it has no first line of this kind."""

FLAGS = {
    b"no-writes": NO_WRITES,
    b"allow-oom": ALLOW_OOM,
    b"allow-stale": ALLOW_STALE,
    b"no-cluster": NO_CLUSTER,
    b"allow-cross-slot-keys": ALLOW_CROSS_SLOT,
}


class Shebang(NamedTuple):
    """The flags of a script, and the length of its first line, which Lua does not see."""

    flags: int
    size: int


def parse(body: bytes, valkey: bool = False) -> Shebang:
    """Return the flags that a script declares; CommandError if the line is malformed.

    valkey: the engine's name has any case of letters, and is looked at behind the options; quotes may be inside a word.
    """
    if not body.startswith(b"#!"):
        return Shebang(COMPAT_MODE, 0)
    size = body.partition(b"\0")[0].find(b"\n")
    if size < 0:
        raise CommandError("Invalid script shebang")
    words = split_args(body[:size], valkey)
    if not words or len(words[0]) < 2:
        raise CommandError("Invalid engine in script shebang")
    if words[0] != b"#!lua" and not valkey:
        raise CommandError(f"Unexpected engine in script shebang: {_text(words[0])}")
    flags = 0
    for word in words[1:]:
        if not word.startswith(b"flags="):
            raise CommandError(f"Unknown lua shebang option: {_text(word)}")
        for name in word[6:].split(b",") if word[6:] else ():
            if name not in FLAGS:
                raise CommandError(f"Unexpected flag in script shebang: {_text(name)}")
            flags |= FLAGS[name]
    if words[0][2:].lower() != b"lua":
        raise CommandError(f"Could not find scripting engine '{_text(words[0][2:])}'")
    return Shebang(flags, size)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")
