"""The HTTP API as OpenAPI 3.1, from one table: path, summary, parameters, response."""

from __future__ import annotations

from typing import Any

import rillet
from rillet.inspector.actions import ACTIONS

_KEY = ("key", "string", True, "the key, in printable notation: a\\xff for bytes that are not text")
_START = ("start", "string", False, "first position: -, an ID, (ID to exclude it, or milliseconds; default -")
_END = ("end", "string", False, "last position; default +")
_WHERE = ("where", "array", False,
          "filters that must all match, also separated by commas: carrier=UA, delay>=30, text~error, or a word")
_PLACE = ("place", "integer", False, "the number of a place, if the inspector shows several; default 0")
_GROUP = ("group", "string", True, "the consumer group")
Parameter = tuple[str, str, bool, str]
_READS: tuple[tuple[str, str, str, tuple[Parameter, ...]], ...] = (
    ("place", "The place, the server, and the cost of the inspector", "object", ()),
    ("overview", "Keys by type and size, streams, memory over time, slow log, clients", "object", ()),
    ("streams", "The names of the streams", "object", (("match", "string", False, "a glob; default *"),)),
    ("stream", "Length, edges, counters, memory and groups of a stream", "object", (_KEY,)),
    ("entries", "A page of entries", "object", (
        _KEY, _START, _END, _WHERE, ("count", "integer", False, "the most entries; default 100"),
        ("reverse", "boolean", False, "from the end"))),
    ("entry", "One entry with its bytes, and JSON values as trees", "object", (
        _KEY, ("id", "string", True, "the ID of the entry"))),
    ("timeline", "Entries by time, with holes and trims", "object", (
        _KEY, ("buckets", "integer", False, "default 120"), ("start", "integer", False, "milliseconds"),
        ("end", "integer", False, "milliseconds"))),
    ("rank", "How many entries are at or before an ID; null unless the server is rillet", "object", (
        _KEY, ("id", "string", True, "an ID"))),
    ("groups", "Groups of a stream: lag, consumers, ages of pending entries", "object", (_KEY,)),
    ("pending", "Pending entries of a group, each with its entry", "object", (
        _KEY, _GROUP, _START, ("consumer", "string", False, "only its entries; the name may be empty"),
        ("idle", "integer", False, "only entries delivered so many milliseconds ago"),
        ("count", "integer", False, "the most entries; default 50"))),
    ("letters", "A page of dead letters, the newest first", "object", (
        _KEY, _END, ("count", "integer", False, "the most letters; default 100"),
        ("stream", "string", False, "only letters of this stream"), ("group", "string", False, "only of this group"),
        ("reason", "string", False, "only with this reason"))),
    ("letters/streams", "The streams whose last entry is a dead letter", "object", ()),
    ("letters/counts", "The dead letters of a stream by origin and reason", "object", (_KEY,)),
    ("value", "A page of the elements of a hash, a set, a sorted set or a list, or a string", "object", (
        _KEY, ("start", "string", False, "`next` of the page before"),
        ("count", "integer", False, "the most elements; default 100"),
        ("match", "string", False, "a glob on fields and members"),
        ("reverse", "boolean", False, "the highest scores of a sorted set first"))),
    ("element", "One element with its bytes and JSON tree", "object", (
        _KEY, ("element", "string", True, "a field, an index or a member; a name may be empty"))),
    ("bytes", "The blocks of a key, one as annotated spans, and the rax of a stream", "object", (
        _KEY, ("at", "string", False, "for a stream: the ID from which nodes are returned"),
        ("block", "integer", False, "the number of the block that is drawn"))),
    ("append", "The four steps that added an entry to its node, with the bytes after each", "object", (
        _KEY, ("id", "string", True, "the ID of the entry"))),
    ("commands", "The command table", "object", ()),
    ("feed", "Live updates of the overview and of a stream", "events", (
        ("stream", "string", False, "the stream"), ("tail", "boolean", False, "also its new entries"),
        ("after", "string", False, "an ID; default $"), _WHERE)),
    ("export", "A range of entries as a file", "file", (
        _KEY, _START, _END, _WHERE, ("format", "string", False, "csv, jsonl or parquet"))),
    ("search/keys", "Keys by pattern and type, while they are found", "lines", (
        ("match", "string", False, "a glob; default *"), ("type", "string", False, "such as stream or hash"))),
    ("search/entries", "Entries by field, while they are found", "lines", (_KEY, _START, _END, _WHERE)),
    ("openapi.json", "This description", "object", ()),
)  # fmt: skip
_ACTS: tuple[tuple[str, str, tuple[Parameter, ...]], ...] = (
    ("console", "Run a command: a read, or with --write a confirmed write", (
        ("line", "string", True, "the command, as for redis-cli"),
        ("explain", "boolean", False, "only return whether it writes, and whether the server lists it as dangerous"),
        ("confirm", "string", False, "the command as `explain` returned it, to run a write"))),
    ("preview", "The commands of an action; nothing is written", ()),
    ("act", "Run an action whose commands were confirmed", (
        ("confirm", "string", True, "`confirm` of the preview"),)),
)  # fmt: skip
_ACTION: tuple[Parameter, ...] = (
    ("action", "string", True, ", ".join(ACTIONS)),
    ("key", "string", True, "the stream, or the key"), ("group", "string", False, "the group"),
    ("ids", "array", False, "the entries"), ("consumer", "string", False, "for claim and delete-consumer"),
    ("min_idle", "integer", False, "for claim"),
    ("target", "string", False, "for dead-letter and requeue-letters: the other stream"),
    ("mode", "string", False, "for nack: FAIL, FATAL or SILENT"),
    ("id", "string", False, "for move, create-group and trim"),
    ("fields", "string", False, "for add: a line name=value for each field"),
)  # fmt: skip
_MEDIA = {
    "object": "application/json", "lines": "application/x-ndjson", "events": "text/event-stream",
    "file": "application/octet-stream",
}  # fmt: skip


def describe() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths: dict[str, Any] = {}
    for name, summary, kind, parameters in _READS:
        paths[f"/api/{name}"] = {"get": {
            "summary": summary, "operationId": name.replace("/", "_").replace(".", "_"),
            "parameters": [
                {"name": one, "in": "query", "required": required, "description": text, "schema": _schema(type)}
                for one, type, required, text in (*parameters, _PLACE)
            ],
            "responses": _responses(_MEDIA[kind]),
        }}  # fmt: skip
    for name, summary, parameters in _ACTS:
        body = (*_ACTION, *parameters) if name != "console" else parameters
        paths[f"/api/{name}"] = {"post": {
            "summary": summary, "operationId": name,
            "parameters": [{"name": "place", "in": "query", "required": False, "description": _PLACE[3],
                            "schema": {"type": "integer"}},
                           {"name": "X-Rillet-Inspector", "in": "header", "required": True,
                            "schema": {"type": "string"}, "description": "any value"}],
            "requestBody": {"required": True, "content": {"application/json": {"schema": {
                "type": "object", "required": [one for one, _, required, _ in body if required],
                "properties": {one: {**_schema(type), "description": text} for one, type, _, text in body},
            }}}},
            "responses": _responses("application/json"),
        }}  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "rillet inspector", "version": rillet.__version__,
                 "description": "Reads streams, groups, bytes and keys of a rillet, Redis or Valkey server or store."},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
        "paths": paths,
    }  # fmt: skip


def _schema(kind: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}} if kind == "array" else {"type": kind}


def _responses(media: str) -> dict[str, Any]:
    error = {"description": "{\"error\": ...}", "content": {"application/json": {}}}
    codes = {"400": "the request", "401": "the token", "403": "not allowed", "404": "no such entry or group",
             "409": "the data changed", "413": "over the limit of DUMP", "502": "the server"}  # fmt: skip
    return {"200": {"description": "the result", "content": {media: {}}},
            **{code: {**error, "description": text} for code, text in codes.items()}}  # fmt: skip
