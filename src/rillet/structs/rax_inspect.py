"""Inspection of a rax: the drawing of `Rax.show()` and the verification of `Rax.check()`.

Both functions read only the nodes' public attributes and use an explicit stack, because a tree can be
deeper than Python's recursion limit. The module is not compiled.

The drawing has one line for each chain of single children, and one indented line below it for each
child of a wider node:

    rax: 3 keys, 6 nodes
    "foo" -> [bt] = 1
    |- b -> "ar" -> [] = 2
    `- t -> "er" -> [] = 3

`"foo"` is a compressed node, `[bt]` a plain node with two children, `[]` a leaf, `= value` a key. Bytes
that are not printable ASCII, or that the drawing uses itself, are written \\xNN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rillet.structs.rax import Rax, RaxNode

_PLAIN = frozenset(range(0x21, 0x7F)) - frozenset(b'"[]\\')


def _text(chars: bytes) -> str:
    return "".join(chr(c) if c in _PLAIN else f"\\x{c:02x}" for c in chars)


def _value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def show_rax(rax: Rax) -> str:
    """Draw the tree as text, one line for each branch. O(nodes)"""
    lines = [f"rax: {rax.numele} key{'s' * (rax.numele != 1)}, {rax.numnodes} node{'s' * (rax.numnodes != 1)}"]
    pending: list[tuple[str, str, RaxNode]] = [("", "", rax.head)]
    while pending:
        margin, branch, node = pending.pop()
        chain = []
        while True:
            chain.append(_node_text(node))
            children = node.children()
            if len(children) != 1:
                break
            node = children[0]
        lines.append(margin + branch + " -> ".join(chain))
        if branch:
            margin += "   " if branch.startswith("`") else "|  "
        for position in range(len(children) - 1, -1, -1):
            corner = "`-" if position == len(children) - 1 else "|-"
            edge = _text(node.chars[position : position + 1])
            pending.append((margin, f"{corner} {edge} -> ", children[position]))
    return "\n".join(lines)


def _node_text(node: RaxNode) -> str:
    text = f'"{_text(node.chars)}"' if node.iscompr else f"[{_text(node.chars)}]"
    return f"{text} = {_value(node.data)}" if node.iskey else text


def check_rax(rax: Rax) -> None:
    """Raise AssertionError for the first broken invariant of the rax (rax.py lists them). O(nodes)"""
    keys = nodes = 0
    pending = [rax.head]
    while pending:
        node = pending.pop()
        nodes += 1
        keys += node.iskey
        _check_node(rax, node)
        pending.extend(node.children())
    _require(keys == rax.numele, f"numele is {rax.numele}, but the tree holds {keys} keys")
    _require(nodes == rax.numnodes, f"numnodes is {rax.numnodes}, but the tree holds {nodes} nodes")
    for cut in rax.cuts:
        _require(_is_inside(rax, cut), f"the cut {cut!r} is not inside a compressed node")


def _is_inside(rax: Rax, path: bytes) -> bool:
    """Return whether the path ends between two bytes of a compressed node."""
    node = rax.head
    while node.chars:
        if len(path) < len(node.chars) and node.iscompr:
            return bool(path) and node.chars.startswith(path)
        step = len(node.chars) if node.iscompr else 1
        at = 0 if node.iscompr else node.chars.find(path[:1])
        if len(path) < step or at < 0 or (node.iscompr and not path.startswith(node.chars)):
            return False
        node = node.children()[at]
        path = path[step:]
    return False


def _check_node(rax: Rax, node: RaxNode) -> None:
    size = len(node.chars)
    children = node.children()
    if node.iscompr:
        _require(2 <= size <= rax.node_max_size, f"a compressed node has {size} bytes")
        _require(len(children) == 1, f"a compressed node has {len(children)} children")
    else:
        _require(len(children) == size, f"a plain node has {size} edge bytes but {len(children)} children")
        _require(isinstance(node.link, list) == (size > 1), "link must be a node for one child and a list for more")
        rising = all(node.chars[i] < node.chars[i + 1] for i in range(size - 1))
        _require(rising, f"the edge bytes {node.chars!r} are not in rising order")
    _require(size > 0 or node.iskey or node is rax.head, "a leaf is not a key")
    _require(node.iskey or node.data is None, "a node that is not a key has a value")
    if len(children) == 1 and not rax.unmerged and _mergeable(rax, node, children[0]):
        _require(False, f"{node.chars!r} and {children[0].chars!r} should be merged")


def _mergeable(rax: Rax, node: RaxNode, child: RaxNode) -> bool:
    return (
        not node.iskey
        and not child.iskey
        and len(child.children()) == 1
        and len(node.chars) + len(child.chars) <= rax.node_max_size
    )


def _require(holds: bool, broken: str) -> None:
    if not holds:
        raise AssertionError(f"rax: {broken}")
