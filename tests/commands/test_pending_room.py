"""Whatever takes entries out of the pending ones gives their room back, and what stays is as it was."""

from __future__ import annotations

import pytest

from rillet.protocol.reply_parser import parse_all
from rillet.runtime.engine import Engine
from rillet.runtime.session import Session
from rillet.types.stream.stream import Stream

COUNT = 1200
KEPT = 50
GONE = [b"%d-1" % ms for ms in range(1, COUNT - KEPT + 1)]


def run(session: Session, *words: bytes) -> object:
    session.engine.execute(session, list(words))
    (reply,) = parse_all(session.out.take_bytes())
    return reply


def made() -> tuple[Session, Stream]:
    """Return a stream whose entries are pending with c in group g, the last KEPT of them with d in h, too."""
    session = Engine().session()
    for ms in range(1, COUNT + 1):
        run(session, b"XADD", b"s", b"%d-1" % ms, b"f", b"v")
    last = b"%d-1" % (COUNT - KEPT)
    for group, start, consumer in ((b"g", b"0", b"c"), (b"h", last, b"d")):
        run(session, b"XGROUP", b"CREATE", b"s", group, start)
        run(session, b"XREADGROUP", b"GROUP", group, consumer, b"STREAMS", b"s", b">")
    return session, session.db.peek(b"s")


@pytest.mark.parametrize(("command", "kept"), [
    ([b"XACK", b"s", b"g", *GONE], 2 * KEPT),
    ([b"XACKDEL", b"s", b"g", b"IDS", b"%d" % len(GONE), *GONE], 2 * KEPT),
    ([b"XDELEX", b"s", b"DELREF", b"IDS", b"%d" % len(GONE), *GONE], 2 * KEPT),
    ([b"XTRIM", b"s", b"MAXLEN", b"=", b"%d" % KEPT, b"DELREF"], 2 * KEPT),
    ([b"XADD", b"s", b"MINID", b"=", b"%d-1" % (COUNT - KEPT + 1), b"DELREF", b"*", b"f", b"v"], 2 * KEPT),
    ([b"XGROUP", b"DELCONSUMER", b"s", b"g", b"c"], KEPT),
    ([b"XGROUP", b"DESTROY", b"s", b"g"], KEPT),
])  # fmt: skip
def test_the_room_of_removed_entries_is_freed(command: list[bytes], kept: int) -> None:
    session, stream = made()
    assert stream.pending.slots >= stream.pending.count == COUNT + KEPT
    run(session, *command)
    check(session, stream, kept)


@pytest.mark.parametrize("command", [
    [b"XAUTOCLAIM", b"s", b"g", b"e", b"0", b"-", b"COUNT", b"%d" % len(GONE), b"JUSTID"],
    [b"XCLAIM", b"s", b"g", b"e", b"0", *GONE],
])  # fmt: skip
def test_room_of_deleted_entries_comes_back_when_they_are_claimed(command: list[bytes]) -> None:
    session, stream = made()
    assert run(session, b"XDEL", b"s", *GONE) == len(GONE)
    assert stream.pending.count == COUNT + KEPT
    reply = run(session, *command)
    if command[0] == b"XAUTOCLAIM":  # the cursor is found after the numbers of slots have changed
        assert reply == [b"%d-1" % (COUNT - KEPT + 1), [], GONE]
    check(session, stream, 2 * KEPT)


def check(session: Session, stream: Stream, kept: int) -> None:
    assert stream.pending.slots == stream.pending.count == kept
    stream.check()
    stream.pending.check()
    for group in stream.groups.values():
        group.check()
    rest = [b"%d-1" % ms for ms in range(COUNT - KEPT + 1, COUNT + 1)]
    for group in stream.groups.values():
        listed = run(session, b"XPENDING", b"s", group.name, b"-", b"+", b"10000")
        assert isinstance(listed, list)
        assert [row[0] for row in listed] == (rest if group.consumers else [])
