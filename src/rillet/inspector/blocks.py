"""The bytes of a key: its blocks, one of them as annotated spans, and the rax of a stream.

    rillet, a stream    RILLET.XNODES: the nodes around a position, whole and unchanged
    otherwise           DUMP, if MEMORY USAGE is below the limit: DUMP blocks the server, and its reply is the value

The rax is rebuilt from the IDs of the nodes; of a large stream on rillet it is the part over the nodes on the page, and
`whole` is False. Structures that exist in memory only, the levels of a skiplist and the two tables of a dict, are not
in these bytes: rillet reports them (RILLET.SHAPE), other servers do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet.errors import CommandError, Corrupt
from rillet.inspector.layout.append_steps import append_steps
from rillet.inspector.layout.intset import lay_out_intset
from rillet.inspector.layout.listpack import lay_out
from rillet.inspector.layout.payload import Block, read_payload
from rillet.inspector.layout.span import Span
from rillet.inspector.layout.stream_node import lay_out_node
from rillet.inspector.layout.tree import WORDS as TREE_WORDS
from rillet.inspector.layout.tree import rax_tree
from rillet.inspector.place import InspectedPlace
from rillet.inspector.text import shown, to_text
from rillet.store.arguments.encoding import decode
from rillet.store.arguments.positions import before
from rillet.store.entry import named
from rillet.store.store import Store
from rillet.types.stream.id import MAX, StreamID

NODES = 40
"""The most nodes of a stream on a page, unless the whole stream is below the limit of DUMP."""
_BLOCKS = 5000
_ELEMENTS = 3000
_PLAIN = 4096
_LAST = f"{MAX}-{MAX}".encode()
_ROLES = {
    "hash": ("field", "value"), "zset": ("member", "score"), "set": ("member",), "list": ("element",),
    "expiring": ("field", "value", "time"),
}  # fmt: skip


class TooLarge(Exception):
    """The value is over the limit of DUMP."""


def bytes_of(place: InspectedPlace, store: Store, key: bytes, *, at: str = "", block: int = 0) -> dict[str, Any]:
    """Return the blocks of a key, one as spans, and its rax; TooLarge, Corrupt, CommandError. O(bytes of the page)

    at: for a stream, the ID from which nodes are shown. block: the number of the block that is drawn.
    """
    kind = decode(store.execute("TYPE", key))
    if kind == "none":
        raise CommandError(f"no such key: {to_text(key)[:200]}")
    memory = _number(store, [b"MEMORY", b"USAGE", key])
    found: dict[str, Any] = {
        "key": to_text(key), "type": kind, "encoding": _text(store, [b"OBJECT", b"ENCODING", key]), "memory": memory,
        "limit": place.dump_limit, "rax": None, "shape": shape_of(store, key) if place.is_rillet else None,
    }  # fmt: skip
    if kind == "stream" and place.is_rillet:
        blocks = _nodes(place, store, key, at, memory, found)
    else:
        blocks = _dumped(place, store, key, memory, found)
    if kind == "stream":
        _draw_rax(place, blocks, found)
    if blocks:
        block = max(0, min(block, len(blocks) - 1))
        found["selected"] = {"index": block, **draw(found, blocks[block])}
    found["blocks"] = [_line(one) for one in blocks[:_BLOCKS]]
    return found


def append_of(place: InspectedPlace, store: Store, key: bytes, id: str) -> dict[str, Any]:
    """Return the steps that added an entry, each with the node's bytes as spans; KeyError if no node has it. O(node)"""
    wanted = StreamID.parse(id)
    found: dict[str, Any] = {}
    memory = _number(store, [b"MEMORY", b"USAGE", key])
    if decode(store.execute("TYPE", key)) != "stream":
        raise CommandError("only a stream has entries")
    if place.is_rillet:
        blocks = _nodes(place, store, key, id, memory, found)
    else:
        blocks = _dumped(place, store, key, memory, found)
    nodes = [one for one in blocks if one.key and StreamID.unpack(one.key) <= wanted]
    if not nodes:
        raise KeyError(f"the stream has no entry {wanted}")
    block = nodes[-1]
    steps = []
    for step in append_steps(block.key or b"", block.data, wanted):
        words: dict[str, int] = {}
        spans = lay_out_node(block.key or b"", step.data).spans if step.data else []
        steps.append({
            "name": step.name, "note": step.note, "bytes": len(step.data), "changed": step.changed,
            "spans": [span.as_dict(step.data, words) for span in spans], "words": list(words),
            "page": "stream_node", "facts": {},
        })  # fmt: skip
    return {"key": to_text(key), "id": str(wanted), "node": str(StreamID.unpack(block.key or b"")), "steps": steps}


def _nodes(place: InspectedPlace, store: Store, key: bytes, at: str, memory: int | None,
           found: dict[str, Any]) -> list[Block]:  # fmt: skip
    facts = named(store.run([b"XINFO", b"STREAM", key]))
    total = int(facts["radix-tree-keys"])
    small = memory is not None and memory <= place.dump_limit
    start = before(StreamID.parse(at)) if at and not small else StreamID(0, 0)
    # One entry at least is in each node, so this many entries are in at most so many nodes.
    per_node = max(1, int(facts["length"]) // max(1, total))
    count = int(facts["length"]) if small else NODES * per_node
    reply = store.run([b"RILLET.XNODES", key, str(start).encode(), _LAST, b"COUNT", b"%d" % max(1, count)])
    pairs = list(zip(reply[2::2], reply[3::2], strict=True))
    whole = reply[0] is None and start == (0, 0)
    found |= {"source": "RILLET.XNODES", "total_blocks": total, "whole": whole,
              "next": None if reply[0] is None else decode(reply[0])}  # fmt: skip
    return [Block("listpack", data, 0, None, node) for node, data in (pairs if small else pairs[:NODES])]


def _dumped(place: InspectedPlace, store: Store, key: bytes, memory: int | None, found: dict[str, Any]) -> list[Block]:
    if memory is None:
        raise TooLarge("the size of the value is not known: MEMORY USAGE is refused, and DUMP could block the server")
    if memory > place.dump_limit:
        raise TooLarge(f"the value takes {memory:,} bytes (MEMORY USAGE), over the limit of {place.dump_limit:,}: DUMP "
                       "would block the server. A higher limit: rillet inspect --dump-limit BYTES")  # fmt: skip
    raw = store.execute("DUMP", key)
    if raw is None:
        raise CommandError("no such key: it was deleted meanwhile")
    payload = read_payload(raw)
    found |= {
        "source": "DUMP", "total_blocks": len(payload.blocks), "whole": True, "next": None,
        "payload": {"rdb_type": payload.kind, "form": payload.form, "rdb_version": payload.version,
                    "checksum": payload.sealed, "bytes": payload.size, "facts": payload.facts,
                    "elements": payload.elements, "head": raw[:1].hex(), "footer": raw[-10:].hex(" ")},
    }  # fmt: skip
    return payload.blocks


def _line(block: Block) -> dict[str, Any]:
    found: dict[str, Any] = {"format": block.format, "bytes": len(block.data), "packed": block.packed}
    if block.key:
        found["id"] = str(StreamID.unpack(block.key))
    return found


def draw(about: dict[str, Any], block: Block) -> dict[str, Any]:
    """Return a block as spans for JSON, with the words of the format page."""
    words: dict[str, int] = {}
    data = block.data
    facts: dict[str, Any] = {}
    page = "listpack"
    try:
        if block.key:
            node = lay_out_node(block.key, data)
            spans, facts, page = node.spans, node.facts(), "stream_node"
        elif block.format == "listpack":
            spans = _with_roles(about, data)
        elif block.format == "intset":
            spans, page = lay_out_intset(data), "intset"
        else:
            spans, page = _plain(block), "rdb"
    except Corrupt as error:
        spans, facts = _plain(block), {"problem": str(error)}
    return {
        "bytes": len(data), "packed": block.packed, "format": block.format, "page": page, "facts": facts,
        "spans": [span.as_dict(data, words) for span in spans], "words": list(words),
    }  # fmt: skip


def _with_roles(about: dict[str, Any], data: bytes) -> list[Span]:
    found = lay_out(data, _ELEMENTS)
    expiring = about.get("payload", {}).get("rdb_type") in (23, 25)
    roles = _ROLES.get("expiring" if expiring else about["type"], ("element",))
    for number, element in enumerate(found.elements):
        role = roles[number % len(roles)]
        element.span.kind = role
        element.span.name = f"{role} {number // len(roles)} ({element.span.name})"
    return found.spans


def _plain(block: Block) -> list[Span]:
    size = len(block.data)
    spans = [
        Span(at, min(at + 16, size), "data", f"bytes {at} to {min(at + 16, size) - 1}",
             shown(block.data[at : at + 16], 16)[0])
        for at in range(0, min(size, _PLAIN), 16)
    ]  # fmt: skip
    if size > _PLAIN:
        spans.append(Span(_PLAIN, size, "rest", f"{size - _PLAIN} more bytes"))
    return spans


def _draw_rax(place: InspectedPlace, blocks: list[Block], found: dict[str, Any]) -> None:
    tree = rax_tree([one.key for one in blocks], lambda key: str(StreamID.unpack(key)))
    label = "rebuilt from the IDs of all nodes" if found["whole"] else "rebuilt from the IDs of the nodes on this page"
    found["rax"] = {**tree, "label": label, "words": TREE_WORDS}


def shape_of(store: Store, key: bytes) -> Any:
    """Return the structures of a value that exist in memory only, as rillet reports them; None for other values."""
    try:
        reply = store.execute("RILLET.SHAPE", key)
    except CommandError:
        return None
    return _shape(reply)


def _shape(reply: Any) -> Any:
    """Return a reply of alternating names and values as dicts."""
    if not isinstance(reply, list):
        return to_text(reply) if isinstance(reply, bytes) else reply
    if reply and len(reply) % 2 == 0 and all(isinstance(name, bytes) for name in reply[::2]):
        return {decode(name): _shape(value) for name, value in zip(reply[::2], reply[1::2], strict=True)}
    return [_shape(one) for one in reply]


def _quiet(store: Store, argv: list[bytes], convert: Callable[[Any], Any]) -> Any:
    try:
        reply = store.run(argv)
    except CommandError:
        return None
    return None if reply is None else convert(reply)


def _number(store: Store, argv: list[bytes]) -> int | None:
    found: int | None = _quiet(store, argv, int)
    return found


def _text(store: Store, argv: list[bytes]) -> str | None:
    found: str | None = _quiet(store, argv, decode)
    return found
