"""Arguments of XADD, XTRIM, XDELEX and XACKDEL: trimming, references of groups, and message IDs of producers.

A group refers to an entry while the entry is pending in the group. A policy (Redis 8.2) defines what a deletion does:

    KEEPREF    delete the entry; the references stay, without an entry
    DELREF     delete the entry and the references
    ACKED      delete only entries that every group has read and acknowledged
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, TypeVar

from rillet.store.arguments.argument_checks import encoded, flag, integer_of
from rillet.store.arguments.encoding import Value
from rillet.store.arguments.positions import Position, encode_minid

Item = TypeVar("Item")
RefPolicy: TypeAlias = Literal["KEEPREF", "DELREF", "ACKED"]
_POLICIES = {"KEEPREF": b"KEEPREF", "DELREF": b"DELREF", "ACKED": b"ACKED"}

IDS_PER_COMMAND = 1000  # so that a list of a million IDs does not block the server in one command


def policy_arguments(policy: RefPolicy | None, parameter: str = "ref_policy") -> list[bytes]:
    """Return the argument for a policy, none for None; raise ValueError for another text."""
    if policy is None:
        return []
    word = _POLICIES.get(policy) if isinstance(policy, str) else None
    if word is None:
        raise ValueError(f"{parameter} must be 'KEEPREF', 'DELREF' or 'ACKED', not {policy!r:.200}")
    return [word]


def trim_arguments(maxlen: int | None, minid: Position | None, approximate: bool, limit: int | None) -> list[bytes]:
    """Return the arguments MAXLEN or MINID with their threshold; raise ValueError unless exactly one is given."""
    if (maxlen is None) == (minid is None):
        passed = "neither was" if maxlen is None else "both were"
        raise ValueError(f"pass either maxlen or minid: {passed} passed")
    operator = b"~" if flag(approximate, "approximate") else b"="
    argv = [b"MAXLEN", operator, integer_of(maxlen, "maxlen", 0)] if maxlen is not None else []
    if minid is not None:
        argv = [b"MINID", operator, encode_minid(minid)]
    return argv if limit is None else [*argv, b"LIMIT", integer_of(limit, "limit", 0)]


def add_arguments(
    create: bool, ref_policy: RefPolicy | None, maxlen: int | None, minid: Position | None, approximate: bool,
    limit: int | None,
) -> list[bytes]:  # fmt: skip
    """Return the options of XADD between the key and the ID, without those of a producer."""
    argv = [] if flag(create, "create") else [b"NOMKSTREAM"]
    argv += policy_arguments(ref_policy)
    flag(approximate, "approximate")
    if maxlen is not None or minid is not None:
        argv += trim_arguments(maxlen, minid, approximate, limit)
    elif limit is not None:
        raise ValueError("limit is the most entries that a trim removes: pass maxlen or minid too")
    return argv


def producer_arguments(idmp: tuple[Value, Value] | None, idmpauto: Value | None) -> list[bytes]:
    """Return the arguments IDMP or IDMPAUTO of XADD (Redis 8.6); raise ValueError if both are given.

    TypeError if idmp is not a pair; a text of two characters is not one.
    """
    if idmp is not None and idmpauto is not None:
        raise ValueError("pass either idmp=(producer, message ID) or idmpauto=producer: both were passed")
    if idmp is not None:
        if not isinstance(idmp, (tuple, list)) or len(idmp) != 2:
            raise TypeError(f"pass idmp=(producer, message ID), not {idmp!r}")
        producer, message = idmp
        return [b"IDMP", encoded(producer, "the producer of idmp"), encoded(message, "the message ID of idmp")]
    return [] if idmpauto is None else [b"IDMPAUTO", encoded(idmpauto, "idmpauto")]


def message_ids_of(idmp: tuple[Value, Iterable[Value]]) -> Iterator[Value]:
    """Return the message IDs of idmp=(producer, message IDs); raise TypeError if it is not such a pair."""
    if not isinstance(idmp, (tuple, list)) or len(idmp) != 2 or not isinstance(idmp[1], Iterable) or \
            isinstance(idmp[1], (str, bytes)):  # fmt: skip
        raise TypeError(f"pass idmp=(producer, the message IDs of the entries), not {idmp!r}")
    return iter(idmp[1])


def next_message_id(ids: Iterator[Value]) -> Value:
    """Return the message ID of the next entry; ValueError if there are fewer IDs than entries."""
    for one in ids:
        return one
    raise ValueError("idmp has fewer message IDs than there are entries")


def chunks(ids: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Yield a list of IDs, or of messages, in parts that one command may have."""
    for start in range(0, len(ids), IDS_PER_COMMAND):
        yield ids[start : start + IDS_PER_COMMAND]
