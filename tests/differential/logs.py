"""Two logs side by side: what an engine here feeds to its log, and what a real server wrote into its append-only file.

A log is read as a list of `Unit`s: what one client's command, or one transaction, or one expired key left. Commands are
compared word by word. Milliseconds since the epoch may differ by the time between the two sides.

What differs on purpose is taken out of both (docs/compatibility.md, "Different on purpose"): XGROUP CREATECONSUMER,
which tells of consumers that came to be by asking, and with it the frame of a transaction that it alone makes
necessary; an XDELEX that only references were left of; what a trim by reference reached; the ID of a duplicate; HSET
for the HSETEX ... KEEPTTL that newer servers make of HINCRBYFLOAT.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rillet.protocol.propagation_buffer import PropagationBuffer
from rillet.runtime.engine import Engine
from tests.differential.generator import FUTURE_MS
from tests.differential.wire import TOLERANCE_MS
from tests.judge import Judge


class Kept:
    """A log that keeps its bytes."""

    def __init__(self) -> None:
        self.feed = PropagationBuffer()

    def append(self, db: int, argv: list[bytes]) -> None:
        """Take a command."""
        self.feed.begin(db, 0)
        self.feed.command(argv)

    def flush(self) -> None:
        """There is nothing to make durable."""


def kept(engine: Engine) -> Kept:
    """Give the engine a log that keeps its bytes, and return it."""
    log = engine.log = Kept()
    return log


@dataclass
class Unit:
    """The commands of one MULTI, or one that stands alone; each with its database."""

    commands: list[tuple[int, list[bytes]]]
    framed: bool = False


def commands_in(data: bytes) -> list[list[bytes]]:
    """Return the commands of a log's bytes, SELECT among them."""
    found = []
    at = 0
    while at < len(data):
        if data[at : at + 1] == b"#":
            at = data.index(b"\r\n", at) + 2
            continue
        stop = data.index(b"\r\n", at)
        words = []
        count, at = int(data[at + 1 : stop]), stop + 2
        for _ in range(count):
            stop = data.index(b"\r\n", at)
            size, at = int(data[at + 1 : stop]), stop + 2
            words.append(data[at : at + size])
            at += size + 2
        found.append(words)
    return found


def units(data: bytes) -> list[Unit]:
    """Return what the log's bytes tell, unit by unit, without what differs on purpose."""
    found: list[Unit] = []
    db = 0
    framed = False
    for argv in commands_in(data):
        name = argv[0].upper()
        if name == b"SELECT":
            db = int(argv[1])
        elif name == b"MULTI":
            framed = True
            found.append(Unit([], True))
        elif name == b"EXEC":
            framed = False
        else:
            if not framed:
                found.append(Unit([]))
            if [word.upper() for word in argv[:2]] != [b"XGROUP", b"CREATECONSUMER"]:
                found[-1].commands.append((db, argv))
    return _framed(found)


def _framed(found: list[Unit]) -> list[Unit]:
    """Return the units that hold anything; one command alone needs no frame."""
    for unit in found:
        unit.framed = len(unit.commands) > 1
    return [unit for unit in found if unit.commands]


def _without_references(ours: list[Unit], theirs: list[Unit]) -> list[Unit]:
    """Return our units without each XDELEX DELREF that the other side has not."""
    real = [argv for unit in theirs for _, argv in unit.commands]
    at = 0
    for unit in ours:
        commands = unit.commands
        unit.commands = []
        for db, argv in commands:
            extra = argv[0].upper() == b"XDELEX" and b"DELREF" in [word.upper() for word in argv]
            if not extra or (at < len(real) and argv == real[at]):
                unit.commands.append((db, argv))
                at += 1
    return _framed(ours)


def without_purpose(argv: list[bytes]) -> list[bytes]:
    """Return a command without what differs on purpose in its words."""
    words = [word.upper() for word in argv]
    if words[0] == b"HSETEX":
        return [b"HSET", argv[1], *argv[5:]]
    if words[0] == b"XADD" and (b"IDMP" in words or b"IDMPAUTO" in words):
        argv = [b"..." if word == b"*" or word.startswith(_FAR) else word for word in argv]
    if words[0] in (b"XADD", b"XTRIM") and (b"DELREF" in words or b"ACKED" in words):
        for limit in (b"MAXLEN", b"MINID"):
            if limit in words:
                at = words.index(limit)
                return [*argv[:at], b"...", *argv[at + 3 :]]
    return argv


_FAR = b"%d" % (FUTURE_MS // 1000)


def same_words(ours: list[bytes], theirs: list[bytes]) -> bool:
    """Whether two commands are equal, but for milliseconds that passed and what differs on purpose."""
    if ours == theirs:
        return True
    ours, theirs = without_purpose(ours), without_purpose(theirs)
    return len(ours) == len(theirs) and all(
        our == their or _same_time(our, their) for our, their in zip(ours, theirs, strict=True)
    )


def _same_time(our: bytes, their: bytes) -> bool:
    if not (our.isdigit() and their.isdigit()):
        return False
    # Also what lies a long time ahead of now.
    return min(int(our), int(their)) > 1_500_000_000_000 and abs(int(our) - int(their)) < TOLERANCE_MS


def assert_same(ours: list[Unit], theirs: list[Unit], where: str = "") -> None:
    """Compare two logs unit by unit."""
    ours = _without_references(ours, theirs)
    for number, (our, their) in enumerate(zip(ours, theirs, strict=False)):
        for at, (one, other) in enumerate(zip(our.commands, their.commands, strict=False)):
            before = (our.commands[:at] or ours[:number])[-3:]
            same = one[0] == other[0] and same_words(one[1], other[1])
            assert same, (where, number, "behind", before, "ours", one, "theirs", other)
        assert len(our.commands) == len(their.commands), (where, number, "ours", our, "theirs", their)
    assert len(ours) == len(theirs), (where, ours[len(theirs) :][:3], theirs[len(ours) :][:3])


def assert_same_bytes(ours: bytes, theirs: bytes) -> None:
    """Compare two logs command by command, SELECT, MULTI and EXEC where they stand."""
    mine, real = commands_in(ours), commands_in(theirs)
    for number, (our, their) in enumerate(zip(mine, real, strict=False)):
        assert same_words(our, their), (number, mine[max(0, number - 3) : number + 2], real[number : number + 2])
    assert len(mine) == len(real), (mine[len(real) :][:3], real[len(mine) :][:3])


def file_of(server: Judge) -> Path:
    """Return the file that the server logs to at this moment."""
    return max(server.folder.glob("appendonlydir/*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))
