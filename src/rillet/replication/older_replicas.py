"""The effects of commands, in commands that older replicas know.

    XDELEX s DELREF IDS 1 5-1        ──► XDEL s 5-1, XACK s g1 5-1, XACK s g2 5-1
    XADD s IDMP p i 5-1 f v          ──► XADD s 5-1 f v
    HSETEX h KEEPTTL FIELDS 1 f v    ──► HSET h f v
    MSETEX, SET k v IFEQ, BITOP DIFF ──► SET k <value> [PXAT ms]
    another command                  ──► RESTORE k <ms> <value> REPLACE ABSTTL, or DEL k
    HPEXPIRE h ..., XNACK, ARSET     ──► a refusal: an older server cannot hold the value

A replica of Redis ignores a command that it does not know, so the stream must not contain one. All replicas receive the
same bytes, so that they share offsets: the oldest replica decides. The append-only log contains the original commands.

The rewriting uses the data behind a handler, not its arguments: the written commands repeat its result, whatever the
options were. They follow the other effects of the handler. A full RESTORE costs O(value); what replaces commands of
streams, hashes and strings costs no more than the original.

A value that a replica cannot hold is a refusal: `refused` receives the reason, and rillet.replication.master
disconnects this replica before it sends more. The other replicas get the effects, in a form that the refused one does
not know: so it cannot continue behind them.

This module is compiled, because it runs inside commands that have changed data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rillet.runtime.registry import TABLE, Command
from rillet.runtime.replica_versions import knows, problem, shown
from rillet.structs.crc64 import crc64
from rillet.structs.integer_text import decimal
from rillet.types.compat import Compat
from rillet.types.hash import Hash
from rillet.types.rdb.value import dump
from rillet.types.stream.id import IDReader, format_id
from rillet.types.stream.stream import Stream
from rillet.types.string import String

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine
    from rillet.runtime.session import Session

_MODES = (b"keepref", b"delref", b"acked")  # of references, since 8.2
_CONDITIONS = (b"ifeq", b"ifne", b"ifdeq", b"ifdne")  # of SET, since 8.4; IFEQ since Valkey 8.1
_OPERATIONS = (b"diff", b"diff1", b"andor", b"one")  # of BITOP, since 8.2
_DELETIONS = (b"xdelex", b"xackdel")
_OF_FIELDS = (b"hsetex", b"hgetex", b"hexpire", b"hexpireat", b"hpexpire", b"hpexpireat", b"hpersist")
_SILENT = (b"xcfgset", b"xidmprecord")  # they change the memory of producers alone
_TARGETS = {b"bitop": 2, b"zunionstore": 1, b"zinterstore": 1, b"geosearchstore": 1}  # the only key that changes
_FOOTER = 10
# What `form_of` returns: words decide; all replicas know the command in each form, or SET and XADD without options.
WORDS_DECIDE, EACH_FORM, PLAIN_SET, PLAIN_XADD = 0, 1, 2, 3
_WORDS_DECIDE = frozenset(
    (b"xtrim", b"bitop", b"restore", b"restore-asking", b"function", b"zunionstore", b"zinterstore", b"geosearchstore")
)
_NEWER_FORMS = _WORDS_DECIDE | {b"set", b"xadd"}


class Narrowing:
    """The rewriting for the servers of some replicas; `refused`: (server, reason) of each that cannot follow."""

    def __init__(self, engine: CommandEngine, servers: list[Compat], on_refused: Any) -> None:
        self.servers = servers
        self.refused: list[tuple[Compat, str]] = []
        # The effect of a message that a stream has already: an idempotent producer sent it again.
        self.duplicate: list[bytes] | None = None
        self._engine = engine
        self._on_refused = on_refused
        self._known: dict[bytes, bool] = {}

    def knows(self, name: bytes) -> bool:
        """Return whether all replicas know a command in each of its forms."""
        lowered = name.lower()
        return self._knows(lowered) and lowered != b"bitop"

    def _knows(self, name: bytes) -> bool:
        """Return whether all replicas know a command by its name in lower case."""
        known = self._known.get(name)
        if known is None:
            entry = TABLE.get(name)
            known = entry is None or all(knows(server, entry) for server in self.servers)
            self._known[name] = known
        return known

    def form_of(self, entry: Command) -> int:
        """Return which calls of a command need no rewriting, whatever their words are."""
        name = entry.fullname.encode()
        if entry.container or entry.module or name in _WORDS_DECIDE or not self._knows(name):
            return WORDS_DECIDE
        return PLAIN_SET if name == b"set" else PLAIN_XADD if name == b"xadd" else EACH_FORM

    def _level(self, redis: int, valkey: int = 1 << 30) -> bool:
        """Return whether all replicas have a feature of a level of Redis, or of a version of Valkey (81: 8.1)."""
        for server in self.servers:
            if (_version(server) < valkey) if server.valkey else (server.level < redis):
                return False
        return True

    def is_new(self, argv: list[bytes]) -> bool:
        """Return whether a replica does not know a command, or one of its words. O(words)"""
        name = argv[0].lower()
        if not self._knows(name):
            return True
        if name not in _NEWER_FORMS:
            return False
        if name == b"set":
            return len(argv) > 4 and _has(argv, 3, _CONDITIONS) and not self._level(84, 81)
        if name == b"xadd" or name == b"xtrim":
            if name == b"xadd" and _mode_end(argv) == 2:
                return False
            end = len(argv) if name == b"xtrim" else _mode_end(argv)
            if _has(argv[:end], 2, (b"idmp", b"idmpauto")):
                return not self._level(86)
            return _has(argv[:end], 2, _MODES) and not self._level(82)
        if name == b"bitop":
            return len(argv) > 1 and argv[1].lower() in _OPERATIONS and not self._level(82)
        if name == b"restore" or name == b"restore-asking":
            return len(argv) > 3 and not self._reads(argv[3])
        if name == b"function":
            return len(argv) > 2 and argv[1].lower() == b"restore" and not self._reads(argv[2])
        if name == b"zunionstore" or name == b"zinterstore":
            return argv[-1].lower() == b"count" and not self._level(88)
        if name == b"geosearchstore":
            return _has(argv, 3, (b"bypolygon",)) and not self._level(1 << 30, 90)
        return False

    def _reads(self, payload: bytes) -> bool:
        """Return whether all replicas accept the version of a payload of DUMP."""
        version = int.from_bytes(payload[-_FOOTER : 2 - _FOOTER], "little")
        for server in self.servers:
            if version > server.rdb_version or (server.valkey and 11 < version < 80):
                return False
        return True

    # -- effects -------------------------------------------------------------------------------------

    def rewrite(self, session: Session, effects: list[list[bytes]]) -> list[list[bytes]] | None:
        """Return the effects of a handler for all replicas, or None if they know its commands."""
        new = [argv for argv in effects if self.is_new(argv)]
        if not new:
            return None
        out = [argv for argv in effects if argv not in new]
        done: set[bytes] = set()
        for argv in new:
            if argv is self.duplicate:
                continue
            name = argv[0].lower()
            if name in _SILENT:
                continue
            if name == b"function":
                out.append(self._function(argv))
                continue
            entry = TABLE.get(name)
            if name in _TARGETS:
                keys = [argv[_TARGETS[name]]]
            else:
                keys = [] if entry is None else [argv[at] for at in entry.key_positions(argv)]
            if not keys:
                self._refuse(list(self.servers), f"the command {_text(argv[0])}")
                out.append(argv)
            for key in keys:
                if key not in done:
                    self._key(session, name, argv, key, out, done)
        self.duplicate = None
        return out

    def _key(self, session: Session, name: bytes, argv: list[bytes], key: bytes, out: list[list[bytes]],
             done: set[bytes]) -> None:  # fmt: skip
        """Append commands that repeat what a command has done to a key."""
        value = session.db.peek(key)
        if value is None:
            out.append([b"DEL", key])
            return
        unable = [server for server in self.servers if problem(value, server)]
        if unable:
            reason = problem(value, unable[0])
            self._refuse(unable, f"the value at key {_text(key)} of database {session.db.index}: {reason}")
            able = [server for server in self.servers if server not in unable]
            if able:
                self._restore(session, key, value, able, out)
                done.add(key)
            elif argv not in out:
                out.append(argv)
        elif isinstance(value, String):
            due = session.db.get_expire(key)
            out.append([b"SET", key, value.value(), *([b"PXAT", decimal(due)] if due >= 0 else [])])
            done.add(key)
        elif isinstance(value, Stream) and name in _DELETIONS:
            _deleted(value, name, argv, out)
        elif isinstance(value, Stream) and name in (b"xadd", b"xtrim") and _keeps(argv):
            out.append(_plain(argv))
        elif isinstance(value, Hash) and name in _OF_FIELDS:
            _fields(value, argv, out)
        else:
            self._restore(session, key, value, self.servers, out)
            done.add(key)

    def _restore(self, session: Session, key: bytes, value: object, servers: list[Compat],
                 out: list[list[bytes]]) -> None:  # fmt: skip
        """Append the whole value in the form of the oldest of some servers. O(value)"""
        redis = [server for server in servers if not server.valkey]
        oldest = min(redis or servers, key=_level)
        payload = dump(value, session.engine.settings.rdbcompression, oldest)
        due = session.db.get_expire(key)
        out.append([b"RESTORE", key, decimal(max(due, 0)), payload, b"REPLACE", b"ABSTTL"])

    def _function(self, argv: list[bytes]) -> list[bytes]:
        """Return a FUNCTION RESTORE whose payload has the version of the oldest replica."""
        version = min(server.rdb_version for server in self.servers)
        payload = argv[2][:-_FOOTER] + version.to_bytes(2, "little")
        return [argv[0], argv[1], payload + crc64(payload).to_bytes(8, "little"), *argv[3:]]

    def _refuse(self, servers: list[Compat], reason: str) -> None:
        """Have the replicas of some servers disconnected."""
        for server in servers:
            self.refused.append((server, f"{shown(server)} cannot hold {reason}"))
        self._on_refused()


def _level(server: Compat) -> int:
    return server.level


def _version(server: Compat) -> int:
    """Return the version of a Valkey as major * 10 + minor."""
    major, minor = server.valkey_version.split(".")[:2]
    return int(major) * 10 + int(minor)


def _text(name: bytes) -> str:
    return repr(name.decode("utf-8", "backslashreplace"))


def _has(argv: list[bytes], start: int, words: tuple[bytes, ...]) -> bool:
    return any(word.lower() in words for word in argv[start:])


def _mode_end(argv: list[bytes]) -> int:
    """Return the position of the ID in an XADD: its options end there."""
    at = 2
    while at < len(argv):
        word = argv[at].lower()
        if word in (b"maxlen", b"minid"):
            at += 2 if at + 1 < len(argv) and argv[at + 1] not in (b"=", b"~") else 3
        elif word == b"idmp":
            at += 3
        elif word in (b"limit", b"idmpauto"):
            at += 2
        elif word == b"nomkstream" or word in _MODES:
            at += 1
        else:
            return at
    return at


def _keeps(argv: list[bytes]) -> bool:
    """Return whether an XADD or XTRIM leaves the references of groups to the entries that it trims."""
    end = _mode_end(argv) if argv[0].lower() == b"xadd" else len(argv)
    trims = _has(argv[:end], 2, (b"maxlen", b"minid"))
    return not trims or not _has(argv[:end], 2, (b"delref", b"acked"))


def _plain(argv: list[bytes]) -> list[bytes]:
    """Return an XADD or XTRIM without modes and producers."""
    end = _mode_end(argv) if argv[0].lower() == b"xadd" else len(argv)
    plain, at = argv[:2], 2
    while at < end:
        word = argv[at].lower()
        if word in (b"maxlen", b"minid"):
            size = 2 if argv[at + 1] not in (b"=", b"~") else 3
            plain += argv[at : at + size]
            at += size
        elif word in _MODES:
            at += 1
        elif word == b"idmp":
            at += 3
        elif word == b"idmpauto":
            at += 2
        else:
            plain.append(argv[at])
            at += 1
    return plain + argv[end:]


def _deleted(stream: Stream, name: bytes, argv: list[bytes], out: list[list[bytes]]) -> None:
    """Append XDEL and XACK for the IDs of an XDELEX or XACKDEL that are gone. O(IDs * groups)"""
    first = 2 if name == b"xdelex" else 3
    start = next(at for at in range(first, len(argv)) if argv[at].lower() == b"ids")
    words = argv[start + 2 : start + 2 + int(argv[start + 1])]
    reader = IDReader()
    ids: list[tuple[int, int]] = []
    for word in words:
        reader.read(word, 0, True)
        ids.append((reader.ms, reader.seq))
    gone = [format_id(ms, seq) for ms, seq in ids if not stream.contains(ms, seq)]
    if gone:
        out.append([b"XDEL", argv[1], *gone])
    groups = list(stream.groups.values()) if _has(argv[:start], 2, (b"delref",)) else []
    if name == b"xackdel" and not groups:
        groups = [stream.groups[argv[2]]] if argv[2] in stream.groups else []
    for group in groups:
        free = [format_id(ms, seq) for ms, seq in ids if group.find(ms, seq) < 0]
        if free:
            out.append([b"XACK", argv[1], group.name, *free])


def _fields(value: Hash, argv: list[bytes], out: list[list[bytes]]) -> None:
    """Append HSET and HDEL for the fields of a command on fields with expiry; none of them expires now."""
    at = next(at for at in range(2, len(argv)) if argv[at].lower() == b"fields") + 2
    step = 2 if argv[0].lower() == b"hsetex" else 1
    names = argv[at : at + step * int(argv[at - 1]) : step]
    pairs: list[bytes] = []
    gone: list[bytes] = []
    for name in names:
        found = value.get(name)
        if found is None:
            gone.append(name)
        else:
            pairs += (name, found)
    if pairs:
        out.append([b"HSET", argv[1], *pairs])
    if gone:
        out.append([b"HDEL", argv[1], *gone])
