"""MONITOR: every command that runs, as a line to the clients that watch (replication.c, replicationFeedMonitors).

    +1700000000.123456 [0 127.0.0.1:50000] "SET" "key" "a \\"value\\""\\r\\n
      time, seconds     database and client, "lua" for a command of a script, "unix:" and a path for a Unix socket

A command is shown after it ran, so those of a transaction precede EXEC. Commands with the flags `admin` or
`skip_monitor` are hidden, refused commands too. Passwords are
hidden (runtime/redaction.py).

Costs: nothing while no client watches (Engine.observed). Otherwise O(bytes of the command + clients that watch).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rillet.runtime.redaction import redacted
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.runtime.session_state import CLOSING, IN_SCRIPT, MUTED
from rillet.structs.integer_text import decimal

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_HIDDEN = frozenset(("admin", "skip_monitor"))
# They are shown before the commands that they call (eval.c: evalCommand feeds the monitors itself).
SCRIPTS = frozenset(("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"))
_HEX = b"0123456789abcdef"
# sds.c: sdscatrepr
_SHOWN = [
    bytes((byte,)) if 32 <= byte < 127 else b"\\x" + bytes((_HEX[byte >> 4], _HEX[byte & 15]))
    for byte in range(256)
]
for _byte, _text in (
    (0x5C, b"\\\\"), (0x22, b'\\"'), (10, b"\\n"), (13, b"\\r"), (9, b"\\t"), (7, b"\\a"), (8, b"\\b"),
):  # fmt: skip
    _SHOWN[_byte] = _text
_PLAIN = bytes(byte for byte in range(32, 127) if byte not in b'\\"')


def quoted_word(word: bytes) -> bytes:
    """Return an argument in double quotes, with escapes for the bytes that are not printable. O(n)"""
    if word.translate(None, _PLAIN):
        word = b"".join([_SHOWN[byte] for byte in word])
    return b'"' + word + b'"'


class Monitors:
    """The sessions of one engine that watch its commands, in the order of their MONITOR."""

    __slots__ = ("_engine", "sessions")

    def __init__(self, engine: CommandEngine) -> None:
        self._engine = engine
        self.sessions: dict[Session, None] = {}

    def add(self, session: Session) -> None:
        """Let a session watch."""
        self.sessions[session] = None
        session.enter("monitor")
        self._engine.observe()

    def forget(self, session: Session) -> None:
        """Remove a session, if it watches."""
        if session in self.sessions:
            del self.sessions[session]
            session.enter("stop monitoring")
            self._engine.observe()

    def feed(self, session: Session, entry: Command, argv: list[bytes], current: Session) -> None:
        """Send a line about a command that has run; `current` is the client whose outermost command runs."""
        if not entry.flags & _HIDDEN and entry.fullname not in SCRIPTS:
            self._show(session, entry, argv, current)

    def feed_script(self, session: Session, entry: Command, argv: list[bytes]) -> None:
        """Send a line about a command that calls a script, before it runs."""
        if entry.fullname in SCRIPTS:
            self._show(session, entry, argv, session)

    def _show(self, session: Session, entry: Command, argv: list[bytes], current: Session) -> None:
        if self._engine.loading:
            return
        words = redacted(entry.fullname, argv, self._engine.settings.compat)
        now: int = self._engine.clock.now_us()
        fraction = decimal(now % 1_000_000)
        origin = b"lua" if session.state & IN_SCRIPT else address(session)
        line = b"".join((
            b"+", decimal(now // 1_000_000), b".", b"0" * (6 - len(fraction)), fraction, b" [",
            decimal(session.db.index), b" ", origin, b"] ",
            b" ".join([quoted_word(word) for word in words]), b"\r\n",
        ))  # fmt: skip
        for watcher in list(self.sessions):
            if watcher.state & (CLOSING | MUTED):
                continue
            watcher.out.raw(line)
            if watcher is not current and watcher.on_message is not None:
                watcher.on_message()


def address(session: Session) -> bytes:
    """Return the client's address: ip:port, unix:path, or ?:0 for a session without a socket."""
    peer = session.address("peer")
    return b"unix:" + peer.removesuffix(b":0") if getattr(session.transport, "unix", False) else peer


__all__ = ["SCRIPTS", "Monitors", "address", "quoted_word"]
