"""RILLET.SHAPE: the structures of a value that exist in memory only, for the inspector; Redis does not have it.

    RILLET.SHAPE key                     nil, unless the value has a dict or a skiplist
        rehashidx      the next slot to move while the dict rehashes, -1 otherwise
        tables         for table 0, and for table 1 while it rehashes:
            slots, used                  the size of the table, and its entries
            longest                      the longest chain
            lengths                      how many slots have a chain of 0, 1, 2 ... entries
        levels         of a skiplist, the highest first:
            nodes                        the nodes of the level
            firsts                       the ranks of the first members of the first nodes, at most 100
        node_members   how many members a node holds at most

Bytes that DUMP or RDB contain are not repeated here. The command does not count as an access to the key. A value of
more than MOST members is refused, because the chains are walked. It exists with every `compat` and is never logged.
"""

from __future__ import annotations

from typing import Any

from rillet.commands.keys import command
from rillet.commands.replies import write_tree
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.dict import Dict
from rillet.structs.skiplist import NODE_MEMBERS, Skiplist

MOST = 200_000
"""The most members of a value that is described."""
_FIRSTS = 100


@command("rillet.shape", arity=2, flags="readonly", since="1.0.0", syntax="key", complexity="O(members)")
def shape(session: Session, argv: list[bytes]) -> None:
    """Returns the structures of a value that exist in memory only."""
    value: Any = session.db.view_untouched(argv[1], False)
    if value is None:
        raise CommandError("no such key")
    table: Dict | None = getattr(value, "table", None)
    if table is None:
        session.out.null()
        return
    if len(table) > MOST:
        raise CommandError(f"the value has more than {MOST} members")
    found: dict[bytes, Any] = {b"rehashidx": table.rehashidx, b"tables": _tables(table)}
    skiplist: Skiplist | None = getattr(value, "skiplist", None)
    if skiplist is not None:
        found[b"levels"] = _levels(skiplist)
        found[b"node_members"] = NODE_MEMBERS
    write_tree(session.out, found)


def _tables(table: Dict) -> list[dict[bytes, Any]]:
    found = []
    for number in (0, 1) if table.rehashing else (0,):
        used, exp = (table.used1, table.exp1) if number else (table.used0, table.exp0)
        lengths = table.chain_lengths(number)
        longest = max((length for length, count in enumerate(lengths) if count), default=0)
        found.append({b"slots": 1 << exp if exp >= 0 else 0, b"used": used, b"longest": longest,
                      b"lengths": lengths[: longest + 1]})  # fmt: skip
    return found


def _levels(skiplist: Skiplist) -> list[dict[bytes, Any]]:
    levels: list[list[int]] = []
    rank = 0
    for node in skiplist.layout():
        for level in range(len(node["next"])):
            if level >= len(levels):
                levels.append([])
            levels[level].append(rank)
        rank += len(node["pairs"])
    # The head has every level that a node may have: a level without another node is not in use.
    used = [ranks for level, ranks in enumerate(levels) if level == 0 or len(ranks) > 1]
    return [{b"nodes": len(ranks), b"firsts": ranks[:_FIRSTS]} for ranks in reversed(used)]
