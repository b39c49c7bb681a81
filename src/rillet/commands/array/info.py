"""ARINFO: the layout of an array (Redis: t_array.c)."""

from __future__ import annotations

from rillet.commands.arguments import syntax_error
from rillet.commands.array import command
from rillet.commands.array.values import array_to_read, write_index
from rillet.commands.table_replies import write_score
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.array.sparse_array import NO_INDEX


@command("arinfo", arity=-2, flags="readonly", syntax="key [FULL]",
         complexity="O(1), or O(N) with FULL option where N is the number of slices.")
def arinfo(session: Session, argv: list[bytes]) -> None:
    """Reply with the size and the layout of an array; with FULL, also with statistics of its slices."""
    full = len(argv) > 2
    if full and (len(argv) > 3 or argv[2].lower() != b"full"):
        raise syntax_error()
    array = array_to_read(session, argv[1])
    if array is None:
        raise CommandError("no such key")
    cells, out = array.cells, session.out
    following = array.next_index()
    numbers = {
        b"count": cells.count, b"len": cells.length(), b"next-insert-index": 0 if following == NO_INDEX else following,
        b"slices": cells.slices, b"directory-size": cells.block_room or len(cells.directory),
        b"super-dir-entries": len(cells.blocks), b"slice-size": cells.slice_size,
    }  # fmt: skip
    averages: dict[bytes, float] = {}
    if full:
        parts = [part for _, part in cells.numbered_slices()]
        dense, sparse = [part for part in parts if part.dense], [part for part in parts if not part.dense]
        numbers |= {b"dense-slices": len(dense), b"sparse-slices": len(sparse)}
        windows = sum(part.room for part in dense)
        averages = {
            b"avg-dense-size": windows / len(dense) if dense else 0.0,
            b"avg-dense-fill": sum(part.count for part in dense) / windows if windows else 0.0,
            b"avg-sparse-size": sum(part.room for part in sparse) / len(sparse) if sparse else 0.0,
        }
    out.map(len(numbers) + len(averages))
    for name, number in numbers.items():
        out.bulk(name)
        write_index(out, number)
    for name, average in averages.items():
        out.bulk(name)
        write_score(out, average, False)
