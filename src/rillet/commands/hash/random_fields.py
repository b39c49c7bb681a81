"""HRANDFIELD (Redis: t_hash.c)."""

from __future__ import annotations

from rillet.commands.arguments import LLONG_MAX, LLONG_MIN, integer, syntax_error
from rillet.commands.hash.fields import read_hash
from rillet.commands.hash.scan import write_fields
from rillet.errors import CommandError
from rillet.runtime.registry import command
from rillet.runtime.session import Session

_COUNT_RANGE = f"value is out of range, value must between {-LLONG_MAX} and {LLONG_MAX}"
# With values the reply has twice as many elements, and that number must fit 64 bits too.
_MOST_PAIRS = LLONG_MAX // 2
# Fields picked per batch (HRANDFIELD_RANDOM_SAMPLE_LIMIT).
_BATCH = 1000


@command("hrandfield", arity=-2, flags="readonly", keys=(1, 1, 1), group="hash", since="6.2.0",
         complexity="O(N) where N is the number of fields returned; in a small hash, the number of its fields.",
         syntax="key [count [WITHVALUES]]")
def hrandfield(session: Session, argv: list[bytes]) -> None:
    """Return one or several random fields; a negative count allows repetitions."""
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
    """Reply with `count` random fields (hrandfieldWithCountCommand); with values, RESP3 nests them as pairs."""
    out = session.out
    value = read_hash(session, key)
    if value is None or not count:
        out.array(0)
        return
    wanted = -count if count < 0 else min(count, len(value))
    nested = with_values and out.resp == 3
    out.array(2 * wanted if with_values and not nested else wanted)
    if count > 0:
        write_fields(session, value, value.sample(wanted), with_values, nested)
        return
    while wanted:
        batch = min(wanted, _BATCH)
        write_fields(session, value, value.picks(batch), with_values, nested)
        wanted -= batch
