"""HSCAN (Redis: t_hash.c, db.c)."""

from __future__ import annotations

from rillet.commands.hash.fields import read_hash
from rillet.commands.keys.scan import scan_value
from rillet.runtime.registry import command
from rillet.runtime.session import Session
from rillet.types.hash import Hash


@command("hscan", arity=-3, flags="readonly", keys=(1, 1, 1), group="hash", since="2.8.0",
         complexity="O(COUNT) for a call, O(N) for a whole walk over N fields.",
         syntax="key cursor [MATCH pattern] [COUNT count] [NOVALUES]")
def hscan(session: Session, argv: list[bytes]) -> None:
    """Iterate over the fields of a hash and their values, some per call."""
    value, fields, bare = scan_value(session, argv, read_hash, "HSCAN")
    session.out.array(len(fields) if bare else 2 * len(fields))
    write_fields(session, value, fields, not bare)


def write_fields(
    session: Session, value: Hash | None, fields: list[bytes], with_values: bool, nested: bool = False
) -> None:
    """Write fields of the hash, with their values flat or nested as pairs."""
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
