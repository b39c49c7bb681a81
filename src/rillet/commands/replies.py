"""Replies that many commands write: a value or null, an array of bulk strings, a tree of values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rillet.protocol.reply_writer import ReplyWriter


def bulk_or_null(out: ReplyWriter, data: bytes | None) -> None:
    """Write a bulk string, or null for None."""
    if data is None:
        out.null()
    else:
        out.bulk(data)


def write_bulks(out: ReplyWriter, words: Collection[bytes]) -> None:
    """Write an array of bulk strings."""
    out.array(len(words))
    for word in words:
        out.bulk(word)


class ReplySet(list[Any]):
    """A set in a reply, as the list of its elements in order."""


def write_tree(out: ReplyWriter, value: Any) -> None:
    """Write a reply that is made of nested values.

    bytes become bulk strings, str simple strings, int integers, None null, dict maps, ReplySet sets, and list arrays.
    """
    if isinstance(value, bytes):
        out.bulk(value)
    elif isinstance(value, str):
        out.simple(value.encode())
    elif isinstance(value, int):
        out.integer(value)
    elif value is None:
        out.null()
    elif isinstance(value, dict):
        out.map(len(value))
        write_fields(out, value)
    else:
        if isinstance(value, ReplySet):
            out.set(len(value))
        else:
            out.array(len(value))
        for item in value:
            write_tree(out, item)


def write_fields(out: ReplyWriter, fields: dict[bytes, Any]) -> None:
    """Write the names and values of a map whose header is already written."""
    for name, value in fields.items():
        out.bulk(name)
        write_tree(out, value)
