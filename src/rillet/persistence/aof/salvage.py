"""Executes everything sound of a damaged log in an engine, and lists what was lost.

    a file of frames       frames with a correct checksum are executed; the others are lost as a whole, because none of
                           their bytes can be trusted. If bytes were inserted or removed, the checksums, which depend on
                           the offset, show by how much the later frames were moved
    a file without         after an invalid byte, the commands continue at the next place at which a known command is
                           complete and is followed by another one, by an annotation, or by the end of the file
    an RDB base            rillet.persistence.rdb.salvage

A transaction is executed whole or not at all. After a gap without frames, the commands up to an EXEC without MULTI are
the rest of a transaction whose beginning is lost; a MULTI, or the end of the file, shows that they were not.

A gap may contain the SELECT that changes the database. If the log uses one database only, the commands after the gap
belong to it; otherwise those before the next SELECT are lost.

Nodes that went into a segment since the last rewrite stay in memory, because the log has their entries. Those before
are read from their segments (rillet.persistence.rdb.stream_salvage).

A command that the engine rejects, because it needs data that was lost, is listed and skipped. A command that needs lost
data but is accepted (INCR, LPOP) is executed on the data that remains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from rillet.errors import CommandError
from rillet.persistence.aof.frames import MARK, WRITTEN_ON
from rillet.persistence.rdb.records import MAGICS
from rillet.persistence.rdb.salvage import LostBytes, Salvaged, salvage_rdb
from rillet.runtime.engine import Engine
from rillet.runtime.registry import TABLE

_FRAME = re.compile(rb"#RILLET:([0-9a-f]{8}) (\d{1,19}) (\d{1,19}) (\d{1,19})\r\n")
_HEADER_REST = 16  # the offset in a frame of the bytes that its checksum covers
_COMMAND = re.compile(rb"\*(\d{1,7})\r\n(?=\$\d{1,10}\r\n)")
_BULK = re.compile(rb"\$(\d{1,10})\r\n")
_SELECT = re.compile(rb"\*2\r\n\$6\r\nselect\r\n\$\d{1,2}\r\n(\d{1,5})\r\n", re.IGNORECASE)
_EXEC = re.compile(rb"\*1\r\n\$4\r\nexec\r\n", re.IGNORECASE)
_NAME_AND_KEY = re.compile(rb"\*\d{1,7}\r\n\$\d{1,2}\r\n([A-Za-z.]{2,20})\r\n\$(\d{1,4})\r\n")
_SEALS = (b"RILLET.SEAL", b"RILLET.UNSEAL")  # the log has the entries, too, and the segment may be damaged
_FARTHEST = 1 << 16  # bytes by which a frame may have been moved
_MOST_NAMES = 20


class _LoggedCommand(NamedTuple):
    start: int
    end: int
    argv: list[bytes]


def salvage_log(paths: list[Path], engine: Engine, report: Salvaged) -> None:
    """Execute the sound parts of a log's files, in order. O(bytes)"""
    files = [path.read_bytes() for path in paths]
    numbers = {int(found[1]) for data in files for found in _SELECT.finditer(data)}
    for path, data in zip(paths, files, strict=True):
        start = 0
        if data.startswith(MAGICS) or path.suffix == ".rdb":
            start = salvage_rdb(path, data, engine, report)
            numbers |= {database.index for database in engine.databases if len(database)}
        _FileSalvage(path, data, engine, report, numbers or {0}).run(start)


class _FileSalvage:
    """One file. `databases`: the numbers of all databases that the log uses."""

    def __init__(self, path: Path, data: bytes, engine: Engine, report: Salvaged, databases: set[int]) -> None:
        self.path = path
        self.data = data
        self.engine = engine
        self.report = report
        self.databases = databases
        self.session = engine.session(trusted=True)
        self.transaction: list[_LoggedCommand] | None = None
        # Commands after a gap, until it is known whether they are the rest of a transaction; None: it is known.
        self.undecided: list[_LoggedCommand] | None = None
        self.unknown: list[_LoggedCommand] | None = None  # commands whose database is unknown; None: it is known

    def run(self, start: int) -> None:
        """Execute the commands from an offset on."""
        data = self.data
        self.engine.loading = True
        try:
            framed = start == 0 and data.startswith(MARK)
            if framed or (start == 0 and _FRAME.search(data) is not None):
                self._frames()
            else:
                self._commands(start, len(data), framed=False)
            self._settle()
        finally:
            self.engine.loading = False
            self.engine.close_session(self.session)

    # -- regions -------------------------------------------------------------------------------------

    def _frames(self) -> None:
        data, at, moved = self.data, 0, 0
        while at < len(data):
            line = _FRAME.match(data, at)
            if line is not None and self._is_valid(line, moved):
                end = line.end() + int(line[2])
                self._commands(line.end(), end, framed=True)
                at = end
                continue
            found, moved = self._next_frame(at + 1, moved)
            if data.startswith(WRITTEN_ON, at) or (found >= len(data) and not at):
                # A redis-server continued the file, or no frame is valid: it is not a file of frames.
                self._commands(at, found, framed=False)
                self._settle()
            else:
                found = min(found, self._continued(at + 1))
                self._gap(at, found, "a frame whose checksum is wrong", framed=True)
            at = found

    def _continued(self, at: int) -> int:
        """Return the offset at which a redis-server continued the file after its last frame, else the file's size."""
        data = self.data
        headers = {line.end() for line in _FRAME.finditer(data, max(at - 128, 0))}
        for found in re.finditer(b"|".join(map(re.escape, WRITTEN_ON)), data[at:]):
            here = at + found.start()
            if here not in headers and not any(here < line.start() for line in _FRAME.finditer(data, here)):
                command, end = _command_at(data, here, len(data)), here
                while command is not None:
                    end = command.end
                    command = _command_at(data, end, len(data))
                if end == len(data):
                    return here
        return len(data)

    def _is_valid(self, line: re.Match[bytes], moved: int) -> bool:
        """Return whether a frame's checksum is correct if the frame was written `moved` bytes further back."""
        end = line.end() + int(line[2])
        written_at = (line.start() + moved) & 0xFFFFFFFF
        covered = self.data[line.start() + _HEADER_REST : end]
        return end <= len(self.data) and crc32(covered, written_at) == int(line[1], 16)

    def _next_frame(self, at: int, moved: int) -> tuple[int, int]:
        """Return the offset of the next valid frame, the file's size if there is none, and how far it was moved."""
        for line in _FRAME.finditer(self.data, at):
            if self._is_valid(line, moved):
                return line.start(), moved
        # Bytes were inserted or removed, or the rest is damaged: try the first frame at the offsets around its own.
        for line in list(_FRAME.finditer(self.data, at))[:3]:
            if line.end() + int(line[2]) <= len(self.data):
                for distance in range(1, _FARTHEST):
                    for other in (distance, -distance):
                        if self._is_valid(line, other):
                            return line.start(), other
        return len(self.data), moved

    def _commands(self, at: int, stop: int, framed: bool) -> None:
        """Execute the commands of data[at:stop]; find the next one after each invalid byte."""
        last: _LoggedCommand | None = None  # executed when the command after it was read
        while at < stop:
            found = _command_at(self.data, at, stop)
            if found is None:
                # A damaged length of the last command may have made it swallow the beginning of the next one.
                following = self._next_command(at + 1 if last is None else last.start + 1, stop)
                if last is not None and following < at:
                    at = last.start
                elif last is not None:
                    self._feed(last)
                following = following if following < at or last is None else self._next_command(at + 1, stop)
                what = "an unfinished command" if following == stop else "no command can be read"
                self._gap(at, following, what, framed)
                at, last = following, None
                continue
            if last is not None:
                self._feed(last)
            at, last = found.end, found
        if last is not None:
            self._feed(last)

    def _next_command(self, at: int, stop: int) -> int:
        """Return the offset at which commands continue, `stop` if they do not."""
        for found in _COMMAND.finditer(self.data, at, stop):
            command = _command_at(self.data, found.start(), stop)
            if command is None or TABLE.find(command.argv[0]) is None:
                continue
            end = command.end
            if end == stop or self.data[end : end + 1] == b"#" or _command_at(self.data, end, stop) is not None:
                return found.start()
            # The command is followed by damage: accept it if it begins a line, which no part of a value does.
            if self.data[found.start() - 2 : found.start()] == b"\r\n" and _COMMAND.match(self.data, end):
                return found.start()
        return stop

    # -- commands ------------------------------------------------------------------------------------

    def _feed(self, command: _LoggedCommand) -> None:
        """Execute a command, or keep it until it is known whether its transaction is complete."""
        name = command.argv[0].upper()
        if name.startswith(b"#"):
            return
        if name == b"MULTI":
            self._decide(torn=False)
            self._drop(self.transaction, "a transaction without EXEC")
            self.transaction = [command]
        elif name == b"EXEC":
            if self.undecided is not None:
                self.undecided.append(command)
                self._decide(torn=True)
            elif self.transaction is not None:
                whole, self.transaction = self.transaction, None
                self._execute_whole(whole)
        elif self.undecided is not None:
            self.undecided.append(command)
        elif self.transaction is not None:
            self.transaction.append(command)
        else:
            self._execute(command)

    def _decide(self, torn: bool) -> None:
        """Execute the commands after a gap, or drop them if they are the rest of a transaction."""
        commands, self.undecided = self.undecided, None
        if torn:
            self._drop(commands, "the rest of a transaction whose beginning is lost")
        else:
            for one in commands or ():
                self._execute(one)

    def _execute_whole(self, transaction: list[_LoggedCommand]) -> None:
        """Execute a transaction, which begins with MULTI; drop it if a command or the database is not known."""
        commands = transaction[1:]
        if not all(_is_known(one.argv) for one in commands):
            self._drop(transaction, "a transaction with an invalid command")
            return
        if self.unknown is None or (commands and commands[0].argv[0].upper() == b"SELECT"):
            for one in commands:
                self._execute(one)
            return
        self._drop(transaction, "a transaction for an unknown database")
        for one in commands:
            if one.argv[0].upper() == b"SELECT":
                self._execute(one)

    def _execute(self, command: _LoggedCommand) -> None:
        argv = command.argv
        if argv[0].upper() in _SEALS:
            return
        if argv[0].upper() == b"SELECT":
            self._drop(self.unknown, "commands for an unknown database")
            self.unknown = None
        if self.unknown is not None:
            self.unknown.append(command)
            return
        out = self.session.out
        try:
            self.engine.execute(self.session, argv)
            reply = out.take_bytes()
            refusal = reply[1:].decode("utf-8", "replace").strip() if reply.startswith(b"-") else ""
        except (MemoryError, OverflowError) as error:
            out.take_bytes()
            refusal = str(error) or "out of memory"
        if refusal:
            shown = b" ".join(argv[:3])[:100].decode("utf-8", "backslashreplace")
            self._lose(command.start, command.end, f"{shown!r} was rejected: {refusal}", self._keys(argv), 1)
        elif argv[0].upper() != b"SELECT":
            self.report.commands += 1

    # -- losses --------------------------------------------------------------------------------------

    def _gap(self, start: int, end: int, what: str, framed: bool) -> None:
        """Record lost bytes, and the transaction that they tear."""
        inside = self.data[start:end]
        whole = sum(1 for _ in _whole_commands(self.data, start, end))
        if whole:
            what += f", with {whole} command{'s' if whole != 1 else ''} that may be damaged"
        self._lose(start, end, what, self._names_in(inside), whole)
        self._drop(self.transaction, "the beginning of a transaction whose rest is lost")
        self.transaction = None
        if framed:
            self._drop(self.undecided, "commands between two gaps, possibly of a transaction")
            self.undecided = None  # a frame begins outside of transactions
        elif _EXEC.search(self.data, end) is not None:
            self._drop(self.undecided, "commands between two gaps, possibly of a transaction")
            self.undecided = []
        else:
            self._decide(torn=False)
        if len(self.databases) > 1:
            if self.unknown is None:
                self.unknown = []
        else:
            self._select(next(iter(self.databases)))

    def _select(self, number: int) -> None:
        self.engine.execute(self.session, [b"SELECT", b"%d" % number])
        self.session.out.take_bytes()

    def _settle(self) -> None:
        """Handle the commands that are kept at the end of the file."""
        self._decide(torn=False)
        self._drop(self.transaction, "a transaction without EXEC")
        self.transaction = None
        self._drop(self.unknown, "commands for an unknown database")
        self.unknown = None

    def _drop(self, commands: list[_LoggedCommand] | None, what: str) -> None:
        if commands:
            keys = dict.fromkeys(key for command in commands for key in self._keys(command.argv))
            count = sum(command.argv[0].upper() not in (b"MULTI", b"EXEC") for command in commands)
            self._lose(commands[0].start, commands[-1].end, what, list(keys), count)

    def _lose(self, start: int, end: int, what: str, keys: list[tuple[int, bytes]], commands: int) -> None:
        self.report.losses.append(LostBytes(self.path, start, end, what, tuple(keys[:_MOST_NAMES]), commands))

    def _keys(self, argv: list[bytes]) -> list[tuple[int, bytes]]:
        """Return database and name of the keys of a command."""
        entry = TABLE.find(argv[0])
        if entry is not None and entry.subcommands is not None and len(argv) > 1:
            entry = entry.subcommands.get(argv[1].lower())
        if entry is None or not entry.accepts(len(argv)):
            return []
        try:
            return [(self.session.db.index, argv[at]) for at in entry.key_positions(argv)]
        except (CommandError, ValueError, IndexError):
            return []

    def _names_in(self, damaged: bytes) -> list[tuple[int, bytes]]:
        """Return database and name of the keys that commands in damaged bytes seem to have."""
        names: dict[bytes, None] = {}
        for found in _NAME_AND_KEY.finditer(damaged):
            entry, end = TABLE.find(found[1]), found.end() + int(found[2])
            if entry is not None and entry.keys[0] == 1 and damaged[end : end + 2] in (b"\r\n", b""):
                names[damaged[found.end() : end]] = None
        return [(self.session.db.index, name) for name in names if name]


def _is_known(argv: list[bytes]) -> bool:
    entry = TABLE.find(argv[0])
    return entry is not None and entry.accepts(len(argv))


def _command_at(data: bytes, at: int, stop: int) -> _LoggedCommand | None:
    """Return the command at an offset, None if there is no complete one; an annotation is a command of one word."""
    start = at
    if data[at : at + 1] == b"#":
        end = data.find(b"\n", at, stop) + 1
        return _LoggedCommand(start, end, [data[at:end].rstrip()]) if end else None
    header = _COMMAND.match(data, at, stop)
    if header is None:
        return None
    at, argv = header.end(), []
    for _ in range(int(header[1])):
        bulk = _BULK.match(data, at, stop)
        if bulk is None:
            return None
        at = bulk.end() + int(bulk[1]) + 2
        if at > stop or data[at - 2 : at] != b"\r\n":
            return None
        argv.append(data[bulk.end() : at - 2])
    return _LoggedCommand(start, at, argv) if argv else None


def _whole_commands(data: bytes, at: int, stop: int) -> Iterator[_LoggedCommand]:
    """Yield the known commands in a region that can be parsed completely."""
    for found in _COMMAND.finditer(data, at, stop):
        if found.start() >= at:
            command = _command_at(data, found.start(), stop)
            if command is not None and TABLE.find(command.argv[0]) is not None:
                yield command
                at = command.end
