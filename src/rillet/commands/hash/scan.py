"""HSCAN and HRANDFIELD: some fields of a hash, in turn or by chance (Redis: t_hash.c, db.c)."""

from __future__ import annotations

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, integer, syntax_error
from rillet.commands.hash.hash import read_hash
from rillet.commands.keys.generic import parse_cursor, scan_options
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.structs.glob import compiled
from rillet.types.hash import Hash

_COUNT_RANGE = f"value is out of range, value must between {-LLONG_MAX} and {LLONG_MAX}"
# With values twice as many words are written, and their number has to be one, too.
_MOST_PAIRS = LLONG_MAX // 2
# How many fields are picked at a time (HRANDFIELD_RANDOM_SAMPLE_LIMIT).
_BATCH = 1000


@command("hscan", arity=-3, flags="readonly", keys=(1, 1, 1), group="hash", since="2.8.0",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N fields.",
         syntax="key cursor [MATCH pattern] [COUNT count] [NOVALUES]")
def hscan(session: Session, argv: list[bytes]) -> None:
    """Walk over the fields of a hash and their values, some at a time."""
    cursor = parse_cursor(argv[2])
    value = read_hash(session, argv[1])
    following, fields, bare = 0, list[bytes](), True
    if value is not None:
        count, pattern, bare = scan_options(session, argv, 3, "HSCAN")
        following, fields = value.scan(cursor, count)
        if pattern != b"*":
            glob = compiled(pattern)
            fields = [field for field in fields if glob.matches(field)]
    session.out.array(2)
    session.out.bulk(b"%d" % following)
    session.out.array(len(fields) if bare else 2 * len(fields))
    _write(session, value, fields, not bare)


def _write(session: Session, value: Hash | None, fields: list[bytes], with_values: bool, nested: bool = False) -> None:
    """Write fields of the hash, with their values one after the other or as pairs."""
    out = session.out
    if value is None or not with_values:
        for field in fields:
            out.bulk(field)
        return
    contents = value.table if value.table is not None else dict(value.items())
    for field in fields:
        if nested:
            out.array(2)
        out.bulk(field)
        out.bulk(contents[field])


@command("hrandfield", arity=-2, flags="readonly", keys=(1, 1, 1), group="hash", since="6.2.0",
         complexity="O(N) where N is the number of fields returned; in a small hash, the number of its fields.",
         syntax="key [count [WITHVALUES]]")
def hrandfield(session: Session, argv: list[bytes]) -> None:
    """Return a field picked at random, or several; with a negative count the same ones may come again."""
    if len(argv) == 2:
        value = read_hash(session, argv[1])
        if value is None:
            session.out.null()
        else:
            session.out.bulk(value.picks(1)[0])
        return
    count = integer(argv[2])
    if count == LLONG_MIN:
        raise CommandError(_COUNT_RANGE)
    if len(argv) > 4 or (len(argv) == 4 and argv[3].lower() != b"withvalues"):
        raise syntax_error()
    with_values = len(argv) == 4
    if with_values and abs(count) > _MOST_PAIRS:
        raise CommandError("value is out of range")
    _pick(session, argv[1], count, with_values)


def _pick(session: Session, key: bytes, count: int, with_values: bool) -> None:
    """Reply with so many fields (hrandfieldWithCountCommand); in RESP3 each with its value is an array of two."""
    out = session.out
    value = read_hash(session, key)
    if value is None or not count:
        out.array(0)
        return
    wanted = -count if count < 0 else min(count, len(value))
    nested = with_values and out.resp == 3
    out.array(2 * wanted if with_values and not nested else wanted)
    if count > 0:
        _write(session, value, value.sample(wanted), with_values, nested)
        return
    while wanted:
        batch = min(wanted, _BATCH)
        _write(session, value, value.picks(batch), with_values, nested)
        wanted -= batch
