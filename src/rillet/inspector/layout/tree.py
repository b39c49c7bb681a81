"""A rax over keys, as a tree to draw: plain and compressed nodes, keys as IDs (docs/formats/rax.md).

A server never sends its rax: DUMP and RDB files have the keys only. So the tree is rebuilt from the keys, by the same
rules (`structs.rax`); the memory of a node is computed from Redis's layout of a node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rillet.structs.rax import Rax, RaxNode

WORDS = {
    "plain": "A **plain** node `[bt]` has one child for each of its bytes, in rising order.",
    "compressed": "A **compressed** node `\"foo\"` stands for a chain of nodes with one child each; only the first of "
    "them may be a key.",
    "leaf": "Leaves `[]` have no bytes.",
    "rebuilt": "DUMP and RDB contain a stream as IDs and listpacks, and loading inserts them into a new tree.",
}  # fmt: skip
"""Explanations, which docs/formats/rax.md contains word for word (a test compares them)."""


def rax_tree(keys: Iterable[bytes], name_of: Callable[[bytes], str]) -> dict[str, Any]:
    """Return the rax over the keys for JSON: nodes of kind "plain", "compressed" or "leaf". O(bytes of the keys)

    name_of: the text for a key, such as the ID of a node. A node's `edge` are the bytes that lead to it, in hex.
    """
    rax = Rax()
    for key in keys:
        rax.insert(key, None)
    root = _node(rax.head, "", b"", name_of)
    # An explicit stack: a tree can be deeper than Python's recursion limit.
    todo = [(root, rax.head, b"")]
    while todo:
        found, node, path = todo.pop()
        for at, child in enumerate(node.children()):
            edge = node.chars if node.iscompr else node.chars[at : at + 1]
            made = _node(child, edge.hex(), path + edge, name_of)
            found["children"].append(made)
            todo.append((made, child, path + edge))
    return {"keys": rax.numele, "nodes": rax.numnodes, "root": root}


def _node(node: RaxNode, edge: str, path: bytes, name_of: Callable[[bytes], str]) -> dict[str, Any]:
    kind = "compressed" if node.iscompr else "plain" if node.chars else "leaf"
    return {
        "edge": edge,
        "kind": kind,
        "chars": node.chars.hex(" "),
        "key": name_of(path) if node.iskey else None,
        "bytes": _size(node),
        "children": [],
    }


def _size(node: RaxNode) -> int:
    """Return the bytes of the node in Redis: header, edge bytes, padding, a pointer per child, the value (rax.c)."""
    fixed = 4 + len(node.chars)
    return fixed + -fixed % 8 + 8 * len(node.children()) + 8 * bool(node.iskey)
