"""Copies all keys from files or a server into an engine or a server, with DUMP and RESTORE (`rillet import`).

    FileSource     an engine that loaded an RDB file or a log ──┐             ┌──► EngineTarget    becomes a new store
    ServerSource   SCAN, then PTTL and DUMP in batches ─────────┴─ DumpedKey ─┴──► ServerTarget    RESTORE in batches

A server may be a cluster: each key is read from and written to the node that serves it, and redirections are followed
(rillet.client.servers). A store in a directory that exists is a server, too: its owner's Unix socket.

A target rejects a payload of a newer server. Such a value is decoded and encoded again in the target's RDB version;
data that this version cannot store is reported (`Lost`). A value that cannot be decoded (of a module, for example) is
reported as rejected, and the others are copied.

Memory: a batch of about four megabytes; FileSource holds the whole data. The source of a running server is not frozen:
a key that changes during the copy has its value of the moment at which it was read, or is missing if it was created or
renamed after the scan passed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from rillet.client.servers import ClientOptions, Servers
from rillet.errors import Corrupt, StoreBusy, StoreError
from rillet.host.directory import LOG_FOLDER, Directory
from rillet.persistence.aof.rewrite_format import InlineBaseWriter
from rillet.persistence.aof.service import AofService
from rillet.persistence.rdb.reader import kept_of
from rillet.persistence.rdb.writer import Lost
from rillet.persistence.write_gate import WriteGate
from rillet.protocol.reply_parser import ReplyError
from rillet.runtime.engine import Engine
from rillet.scripting.functions import library_codes, library_name, library_record, payload_codes
from rillet.structs.crc64 import crc64
from rillet.types.compat import COMPATS
from rillet.types.rdb import value as rdb
from rillet.types.rdb.primitives import RdbWriter

Merge = Literal["refuse", "skip", "replace"]
"""The treatment of a key that the target has: refuse to start, keep the target's value, or replace it."""
Progress = Callable[[int, int], None]

BATCH_BYTES = 4 << 20
_MOST_KEYS = 1000
_FIRST_KEYS = 16
_SCAN_COUNT = b"512"
_FOOTER = 10  # bytes at the end of a DUMP payload: version and checksum
_MODULE_VALUE = 7
_VALKEY = COMPATS["valkey"].rdb_version
_FORK_OF_VALKEY = 11
# Error replies that concern the server, not one key.
_FATAL = frozenset("OOM MISCONF READONLY NOPERM NOAUTH CLUSTERDOWN MASTERDOWN LOADING NOREPLICAS".split())
_NAMED = 5


class DumpedKey(NamedTuple):
    """A key to copy: name, DUMP payload, and the time at which it expires (ms by this machine's clock; -1: never)."""

    name: bytes
    payload: bytes
    expires: int = -1


@dataclass(slots=True)
class Copied:
    """The result of a copy. rejected: database, key and reason of each key that the target did not accept."""

    keys: int = 0
    kept: int = 0
    rejected: list[tuple[int, bytes, str]] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)


class Source(Protocol):
    """Interface of the sources."""

    absolute: bool
    """Whether the times of expiry are those of the data, not computed from the time that was left."""

    def databases(self) -> dict[int, int]:
        """Return the number of keys of each database that has any."""

    def names(self, database: int) -> Iterator[list[bytes]]:
        """Yield the names of the keys in batches."""

    def batches(self, database: int, version: int, lost: list[Lost]) -> Iterator[list[DumpedKey]]:
        """Yield the keys in batches, for a target that reads this RDB version."""

    def functions(self) -> bytes:
        """Return the function libraries as a FUNCTION DUMP payload, b"" if there are none."""


class Target(Protocol):
    """Interface of the targets."""

    version: int
    """The newest RDB version that the target reads."""

    def keys(self, databases: Iterable[int]) -> int:
        """Return the number of keys in all databases; StoreError if these databases of a source do not fit."""

    def existing(self, database: int, names: Sequence[bytes]) -> list[bytes]:
        """Return those of the keys that the target has."""

    def write(self, database: int, records: Sequence[DumpedKey], *, replace: bool, absolute: bool) -> list[str]:
        """Write the keys; return an error line for each, "" if the key was written."""

    def add_functions(self, payload: bytes, merge: Merge | None) -> str:
        """Add function libraries, as `merge` says for those that it has; return an error line, "" if all are there."""


def copy_keys(source: Source, target: Target, *, merge: Merge | None = None,
              progress: Progress = lambda done, total: None) -> Copied:  # fmt: skip
    """Copy every key; progress(keys done, keys in total).

    merge: None requires a target without keys. StoreError: the target has keys that `merge` does not permit, or
    rejects all writes. ConnectorError: a server cannot be reached; the keys copied so far stay.
    """
    total = source.databases()
    _check_target(source, target, merge, total)
    copied, done = Copied(), 0
    for database in sorted(total):
        for batch in source.batches(database, target.version, copied.lost):
            errors = target.write(database, batch, replace=merge != "skip", absolute=source.absolute)
            for record, error in zip(batch, errors, strict=True):
                if error.startswith("BUSYKEY"):
                    copied.kept += 1
                elif error.partition(" ")[0] in _FATAL:
                    raise StoreError(f"the target rejected a key after {copied.keys} keys were copied: {error}")
                elif error:
                    copied.rejected.append((database, record.name, error))
                else:
                    copied.keys += 1
            done += len(batch)
            progress(done, max(done, sum(total.values())))
    payload = source.functions()
    error = target.add_functions(payload, merge) if payload else ""
    if error:
        copied.lost.append(Lost(-1, b"", f"function libraries: {error}"))
    return copied


def _check_target(source: Source, target: Target, merge: Merge | None, wanted: dict[int, int]) -> None:
    """Raise StoreError if the target has keys that `merge` does not permit."""
    keys = target.keys(wanted)
    if keys and merge is None:
        raise StoreError(
            f"the target has {keys} key{'s' if keys != 1 else ''}: choose --merge refuse, skip or replace for the keys "
            "that exist on both sides"
        )
    if merge != "refuse" or not keys:
        return
    for database in sorted(wanted):
        for names in source.names(database):
            if found := target.existing(database, names):
                shown = ", ".join(repr(name.decode("utf-8", "backslashreplace")) for name in found[:_NAMED])
                more = ", ..." if len(found) > _NAMED else ""
                raise StoreError(f"the target has keys of the source in database {database}: {shown}{more}; nothing "
                                 "was copied (--merge skip keeps them, --merge replace replaces them)")  # fmt: skip


def encoded(value: object, version: int) -> tuple[bytes, list[str]]:
    """Return a DUMP payload that a server with this RDB version reads, and the parts of the value that it lacks."""
    kind = rdb.type_within(value, version)
    out = RdbWriter()
    out.raw(bytes((kind,)))
    rdb.save(out, value, kind)
    return _sealed(bytes(out.out), min(version, rdb.version_of(kind))), rdb.losses(value, kind)


def _sealed(data: bytes, version: int) -> bytes:
    data += version.to_bytes(2, "little")
    checksum: int = crc64(data)
    return data + checksum.to_bytes(8, "little")


# -- sources -------------------------------------------------------------------------------------------


class FileSource:
    """The databases of an engine that loaded files. Keys that expired before `now` (ms) are omitted and counted."""

    absolute = True

    def __init__(self, engine: Engine, now: int) -> None:
        self.engine = engine
        self.expired = 0
        for database in engine.databases:
            for key in [key for key, when in database.expiries() if when < now]:
                database.delete(key)
                self.expired += 1

    def databases(self) -> dict[int, int]:
        """Return the number of keys of each database that has any."""
        foreign = [value.database for value in kept_of(self.engine).values]
        counts = {one.index: len(one) + foreign.count(one.index) for one in self.engine.databases}
        return {index: count for index, count in counts.items() if count}

    def names(self, database: int) -> Iterator[list[bytes]]:
        """Yield the names of the keys in batches."""
        names = iter(self.engine.databases[database].keys)
        while batch := list(islice(names, _MOST_KEYS)):
            yield batch

    def batches(self, database: int, version: int, lost: list[Lost]) -> Iterator[list[DumpedKey]]:
        """Yield the keys in batches, encoded in this RDB version. O(data)"""
        data = self.engine.databases[database]
        batch: list[DumpedKey] = []
        size = 0
        for key, value in data.items():
            if not rdb.fits(value, version):
                lost.append(Lost(database, key, "an array"))
                continue
            payload, missing = encoded(value, version)
            lost += [Lost(database, key, what) for what in missing]
            batch.append(DumpedKey(key, payload, data.get_expire(key)))
            size += len(payload)
            if size >= BATCH_BYTES or len(batch) >= _MOST_KEYS:
                yield batch
                batch, size = [], 0
        for kept in kept_of(self.engine).values:
            if kept.database == database:
                payload = _sealed(bytes((_MODULE_VALUE,)) + kept.value, min(version, rdb.RDB_VERSION))
                batch.append(DumpedKey(kept.key, payload, kept.expires))
        if batch:
            yield batch

    def functions(self) -> bytes:
        """Return the function libraries as a FUNCTION DUMP payload, b"" if there are none."""
        libraries = b"".join([library_record(code) for code in library_codes(self.engine)])
        return _sealed(libraries, rdb.RDB_VERSION) if libraries else b""


class ServerSource:
    """A server or a cluster that is read key by key. now: returns the time in ms. only: one database, or None."""

    absolute = False

    def __init__(self, options: ClientOptions, now: Callable[[], int], only: int | None = None) -> None:
        self._clients = _Clients(options)
        self._now = now
        self._only = only

    def __str__(self) -> str:
        return str(self._clients)

    def databases(self) -> dict[int, int]:
        """Return the number of keys of each database that has any."""
        counts = self._clients.databases()
        return counts if self._only is None else {at: count for at, count in counts.items() if at == self._only}

    def names(self, database: int) -> Iterator[list[bytes]]:
        """Yield the names of the keys in batches; a key may occur twice, as with SCAN."""
        servers = self._clients.at_database(database)
        for connection in servers.masters():
            cursor = b""
            while cursor != b"0":
                cursor, found = servers.ask(connection, b"SCAN", cursor or b"0", b"COUNT", _SCAN_COUNT)
                if found:
                    yield found

    def batches(self, database: int, version: int, lost: list[Lost]) -> Iterator[list[DumpedKey]]:
        """Yield the keys in batches (PTTL and DUMP), encoded anew if the target does not read the server's payload."""
        servers = self._clients.at_database(database)
        most = _FIRST_KEYS
        for names in self.names(database):
            while names:
                part, names = names[:most], names[most:]
                replies = servers.each([(name, words) for name in part
                                        for words in ((b"PTTL", name), (b"DUMP", name))])  # fmt: skip
                now, batch = self._now(), []
                for at, name in enumerate(part):
                    left, payload = replies[2 * at : 2 * at + 2]
                    for reply in (left, payload):
                        if isinstance(reply, ReplyError):
                            raise StoreError(f"{self} rejected PTTL or DUMP of {name!r}: {reply}")
                    if payload is not None:  # None: deleted or expired since SCAN
                        payload = _readable(payload, version, database, name, lost)
                        batch.append(DumpedKey(name, payload, now + max(left, 1) if left >= 0 else -1))
                size = sum(len(record.payload) for record in batch)
                most = max(1, min(most * 2, _MOST_KEYS, most * BATCH_BYTES // max(size, 1)))
                if batch:
                    yield batch

    def functions(self) -> bytes:
        """Return the function libraries as a FUNCTION DUMP payload, b"" if there are none."""
        for connection in self._clients.at_database(0).masters():
            (reply,) = connection.replies([(b"FUNCTION", b"DUMP")])
            if isinstance(reply, bytes) and len(reply) > _FOOTER:
                return reply
        return b""

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()


def _readable(payload: bytes, version: int, database: int, name: bytes, lost: list[Lost]) -> bytes:
    """Return a payload that a server with this RDB version reads; the same if that is true or cannot be achieved."""
    written = int.from_bytes(payload[-_FOOTER : 2 - _FOOTER], "little")
    newest = max(version, _VALKEY) if version == _VALKEY else version
    if written <= newest and (newest != _VALKEY or written <= _FORK_OF_VALKEY or written == _VALKEY):
        return payload
    try:
        if not rdb.seal_is_valid(payload):
            return payload
        value = rdb.restore(payload)
        if not rdb.fits(value, version):
            return payload
        made, missing = encoded(value, version)
    except (Corrupt, IndexError, OverflowError):
        return payload  # the target's error names the reason
    lost += [Lost(database, name, what) for what in missing]
    return made


# -- targets -------------------------------------------------------------------------------------------


class EngineTarget:
    """An engine in memory, for the log of a new store (`write_directory`)."""

    version = rdb.NEWEST_VERSION

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._session = engine.session(trusted=True)

    def keys(self, databases: Iterable[int]) -> int:
        """Return the number of keys in all databases; StoreError if these databases of a source do not fit."""
        most = len(self._engine.databases)
        beyond = max(databases, default=0)
        if beyond >= most:
            raise StoreError(f"the source has keys in database {beyond}: expected a number below {most}")
        return sum(map(len, self._engine.databases))

    def existing(self, database: int, names: Sequence[bytes]) -> list[bytes]:
        """Return those of the keys that the target has."""
        return [name for name in names if name in self._engine.databases[database].keys]

    def write(self, database: int, records: Sequence[DumpedKey], *, replace: bool, absolute: bool) -> list[str]:
        """Write the keys; return an error line for each, "" if the key was written."""
        self._run([b"SELECT", b"%d" % database])
        extra = [b"REPLACE"] if replace else []
        return [self._run([b"RESTORE", one.name, b"%d" % max(one.expires, 0), one.payload, b"ABSTTL", *extra])
                for one in records]  # fmt: skip

    def _run(self, argv: list[bytes]) -> str:
        self._engine.execute(self._session, argv)
        reply = self._session.out.take_bytes()
        return reply[1:].decode("utf-8", "replace").strip() if reply.startswith(b"-") else ""

    def add_functions(self, payload: bytes, merge: Merge | None) -> str:
        """Add function libraries, which the new store loads when it needs them; return ""."""
        kept_of(self._engine).functions.extend(map(library_record, payload_codes(payload)))
        return ""


class ServerTarget:
    """A server, a cluster, or a store that a process owns. only: the database to write all keys to, or None."""

    def __init__(self, options: ClientOptions, now: Callable[[], int], only: int | None = None) -> None:
        self._clients = _Clients(options)
        self._now = now
        self._only = only
        self.version = rdb_version_of(self._clients.info(b"server"))

    def __str__(self) -> str:
        return str(self._clients)

    def keys(self, databases: Iterable[int]) -> int:
        """Return the number of keys in all databases; StoreError if these databases of a source do not fit."""
        counts, given = self._clients.databases(), sorted(databases)
        if self._only is not None:
            if len(given) > 1:
                raise StoreError(f"the source has databases {', '.join(map(str, given))}, but the target's url selects "
                                 f"database {self._only}: give the url without a database, or copy one database at a "
                                 "time")  # fmt: skip
            return counts.get(self._only, 0)
        if self._clients.cluster and given and given[-1]:
            raise StoreError(f"the source has keys in database {given[-1]}, but a cluster has only database 0: copy "
                             "database 0 only")  # fmt: skip
        return sum(counts.values())

    def _servers(self, database: int) -> Servers:
        return self._clients.at_database(0 if self._clients.cluster else database if self._only is None else self._only)

    def existing(self, database: int, names: Sequence[bytes]) -> list[bytes]:
        """Return those of the keys that the target has."""
        replies = self._servers(database).each([(name, (b"EXISTS", name)) for name in names])
        return [name for name, reply in zip(names, replies, strict=True) if reply == 1]

    def write(self, database: int, records: Sequence[DumpedKey], *, replace: bool, absolute: bool) -> list[str]:
        """Write the keys; return an error line for each, "" if the key was written."""
        now = self._now()
        extra = [*([b"REPLACE"] if replace else []), *([b"ABSTTL"] if absolute else [])]
        requests = []
        for name, payload, expires in records:
            when = 0 if expires < 0 else expires if absolute else max(expires - now, 1)
            requests.append((name, (b"RESTORE", name, b"%d" % when, payload, *extra)))
        replies = self._servers(database).each(requests)
        return [str(reply) if isinstance(reply, ReplyError) else "" for reply in replies]

    def add_functions(self, payload: bytes, merge: Merge | None) -> str:
        """Add function libraries to each node, without those that it has; return an error line, "" if all are there."""
        codes = payload_codes(payload)
        for connection in self._servers(0).masters():
            (found,) = connection.replies([(b"FUNCTION", b"LIST", b"WITHCODE")])
            if isinstance(found, ReplyError):
                return str(found)
            known = [dict(zip(one[::2], one[1::2], strict=True)) for one in found]
            kept = {one[b"library_name" if merge == "skip" else b"library_code"] for one in known}
            missing = [code for code in codes if (library_name(code) if merge == "skip" else code) not in kept]
            records = _sealed(b"".join(map(library_record, missing)), rdb.RDB_VERSION)
            policy = b"REPLACE" if merge == "replace" else b"APPEND"
            (reply,) = connection.replies([(b"FUNCTION", b"RESTORE", records, policy)]) if missing else (b"",)
            if isinstance(reply, ReplyError):
                return f"{reply}{'; choose --merge skip or replace' if 'already exists' in str(reply) else ''}"
        return ""

    def close(self) -> None:
        """Close the connections."""
        self._clients.close()


def rdb_version_of(info: dict[str, str]) -> int:
    """Return the newest RDB version that a server reads, from the fields of INFO server."""
    if valkey := info.get("valkey_version"):
        return _VALKEY if int(valkey.partition(".")[0]) >= 9 else _FORK_OF_VALKEY
    major, minor = (int(part) for part in info.get("redis_version", "7.0").split(".")[:2])
    newest = ((5, 0), 9), ((7, 0), 10), ((7, 2), 11), ((7, 4), 12), ((8, 6), 13), ((8, 8), 14)
    return max((version for since, version in newest if (major, minor) >= since), default=9)


class _Clients:
    """A client for each database of a server."""

    def __init__(self, options: ClientOptions) -> None:
        self._options = options
        self.cluster = bool(options.seeds())
        self._open: dict[int, Servers] = {}

    def __str__(self) -> str:
        return str(self.at_database(0))

    def at_database(self, database: int) -> Servers:
        """Return the client for a database."""
        if database not in self._open:
            address = replace(self._options.server, db=database)
            self._open[database] = Servers(replace(self._options, server=address))
        return self._open[database]

    def info(self, section: bytes) -> dict[str, str]:
        """Return the fields of a section of INFO, from one node."""
        servers = self.at_database(0)
        text: bytes = servers.ask(next(iter(servers.masters())), b"INFO", section)
        lines = text.decode("utf-8", "replace").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def databases(self) -> dict[int, int]:
        """Return the number of keys of each database that has any."""
        if self.cluster:
            servers = self.at_database(0)
            keys = sum(servers.ask(connection, b"DBSIZE") for connection in servers.masters())
            return {0: keys} if keys else {}
        fields = self.info(b"keyspace")
        counts = {int(name[2:]): int(value.partition("=")[2].partition(",")[0]) for name, value in fields.items()}
        return {database: count for database, count in counts.items() if count}

    def close(self) -> None:
        """Close the connections."""
        while self._open:
            self._open.popitem()[1].close()


def server_options(url: str, timeout: float = 60.0) -> tuple[ClientOptions, int | None]:
    """Return the options for a url, and the number of the database if the url has one; AddressError."""
    options = ClientOptions.from_url(url, timeout, strict=False)
    address, rest = options.server, url.partition("://")[2].partition("@")[2] or url.partition("://")[2]
    path, _, query = rest.partition("?")
    names_one = "db=" in query or (address.unix is None and bool(path.partition("/")[2].strip("/")))
    return options, address.db if names_one else None


# -- a new store ---------------------------------------------------------------------------------------


def write_directory(path: Path, engine: Engine) -> None:
    """Make an empty or new folder the directory of a store with the engine's data; StoreError, Misconf. O(data)

    The manifest is committed last, so after a crash or an error the directory is an empty store.
    """
    directory = Directory(path)
    if not directory.lock():
        raise StoreBusy(f"{path} is open in process {directory.holder() or '?'}: close it there, then import")
    gate, base = WriteGate(engine), InlineBaseWriter(engine)
    try:
        service = AofService(engine, directory.path / LOG_FOLDER, engine.settings.appendfilename, base,
                             lock=directory.log_lock, gate=gate, on_failure=lambda reason: None)  # fmt: skip
        service.open(begin_with_base=True)
        service.close()
    finally:
        directory.unlock()
