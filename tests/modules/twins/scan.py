"""The twin of Redis's tests/modules/scan.c: the keys of a database, and the elements of a value."""

from __future__ import annotations

from typing import Any

from rillet.modules import Context, Module

module = Module("scan", 1)
SCANS = {"hash": "HSCAN", "set": "SSCAN", "zset": "ZSCAN"}


@module.command("scan.scan_strings", arity=-1)
def scan_strings(context: Context, argv: list[bytes]) -> list[list[bytes]]:
    return [[key, context.call("GET", key)] for key in context.all_keys() if context.key(key).type == "string"]


@module.command("scan.scan_key", arity=2)
def scan_key(context: Context, argv: list[bytes]) -> list[Any]:
    kind = context.key(argv[1]).type
    cursor, found = b"0", []
    while True:
        cursor, some = context.call(SCANS[kind], argv[1], cursor)
        pairs = [(one, None) for one in some] if kind == "set" else zip(some[::2], some[1::2], strict=True)
        found += [list(pair) for pair in pairs]
        if cursor == b"0":
            return found
