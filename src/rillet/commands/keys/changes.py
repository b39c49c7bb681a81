"""RILLET.CHANGES: the streams that changed after a position, for clients that follow many streams; Redis lacks it.

    RILLET.CHANGES 0                    -> [position, nil]              everything may have changed: look at all streams
    RILLET.CHANGES position             -> [position, [names]]          these have changed, or are gone
    RILLET.CHANGES position MATCH glob  -> ...                          of these, the ones that match

The first call begins to record changes (runtime/key_changes.py); until then they cost nothing. A client looks at the
streams after it has received the position, so it misses no change; a stream may be listed without one. The reply is nil
after a restart of the server, after FLUSHALL and SWAPDB, and if more than LISTED streams have changed.

It is no part of COMMAND, because it is not a command of the server that `compat` names. It is read-only and never
logged. As with SCAN, the reply has names of keys that a user may not read.
"""

from __future__ import annotations

from rillet.commands.arguments import syntax_error
from rillet.commands.keys import command
from rillet.commands.replies import write_tree
from rillet.runtime.session import Session
from rillet.structs.glob import matching

LISTED = 1_000_000


@command("rillet.changes", arity=-2, flags="readonly", keys=(0, 0, 0), since="1.0.0", syntax="position [MATCH pattern]",
         complexity="O(N) for N streams that changed; at the first calls O(keys)")
def changes(session: Session, argv: list[bytes]) -> None:
    """List the streams that changed after a position."""
    if len(argv) > 2 and (len(argv) != 4 or argv[2].lower() != b"match"):
        raise syntax_error()
    recorded = session.engine.changes_of(session.db)
    found = recorded.since(argv[1])
    if found is not None and len(found) > LISTED:
        found = None
    if found and len(argv) > 2:
        found = matching(argv[3], found)
    write_tree(session.out, [recorded.position(), found])
