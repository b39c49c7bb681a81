"""migrate_keys: copies keys of every type but streams from server to server, and verifies them by digests.

    migrate_keys(spark, {"url": "redis://old"}, {"url": "redis+cluster://new"}, pattern="user:*").show()

`migrate` copies streams, which need more than their value: groups, pending entries and counters. `rillet pipeline
migrate --keys PATTERN` copies other keys.

The keys are divided as for a read (client/key_scan.py): each part is a Spark task. A task works in rounds:

    1  for each batch of the source's keys: compare with the target; copy what differs by DUMP and RESTORE
    2  delete keys of the target that the source no longer has (not in the first round of a new copy)
    3  with `follow`, another round, until a round copies and deletes nothing; then the last comparison

A value that the target refuses to restore, because its server is older or another fork, is built again by commands
(SET, RPUSH, SADD, ZADD, HSET and HPEXPIREAT) under a temporary name in its slot, and renamed.

**Comparison.** Two values are equal if type and content are equal: the text of a string, the elements of a list in
order, the members of a set, members and scores, the values of an array with their indexes and its insert index, fields,
values and the times at which fields expire (if both servers have field expiry; otherwise the report names the hashes
that lose it). Encodings may differ. The lifetimes may differ
by LIFETIME ms, because DUMP and RESTORE take time. A module's value is compared by its DUMP payload. The digest in the
report combines the digests of all keys (XOR of xxh3-128), so it does not depend on their order.

**A source that still receives writes.** A key that changes during the comparison differs, and is copied again in the
next round. To switch over: follow, stop the writers, wait for the end, then start them at the target.

The report has a row for each part: keys, copied, rebuilt, deleted, rounds, digests of source and target, whether they
are equal, and the first differences. The task needs memory for one batch of values, and for the names of its keys.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from xxhash import xxh3_128_intdigest

from rillet.client.errors import ConnectorError
from rillet.client.key_scan import SHARES, KeyScan, ScanPart, plan_scan
from rillet.client.servers import Servers
from rillet.client.transaction import retry
from rillet.errors import RilletError
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic
from rillet.spark.errors import plainly
from rillet.spark.options import ConnectionOptions, OptionError, declared
from rillet.spark.pipelines.cli_common import PipelineError
from rillet.spark.pipelines.migrate_compare import POLICIES, REFUSE, places
from rillet.spark.pipelines.tables import Progress, silent
from rillet.spark.pipelines.task_runner import TaskRunner, memory_of
from rillet.spark.read.metadata import key_count
from rillet.spark.server_address import require_store
from rillet.spark.table_options import TableOptions, escaped, parse_table
from rillet.spark.write.commits import record_key, shown
from rillet.types.rdb import value as rdb

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTION = frozenset(one.name.lower() for one in declared(ConnectionOptions))  # options that name a server
LIFETIME = 2000
AT_ONCE = 100
_NAMED = 5
_PAUSE = 0.2
_CHUNK = 1000
_SCHEMA = (
    "part int, keys bigint, copied bigint, rebuilt bigint, deleted bigint, rounds int, source_digest string, "
    "target_digest string, equal boolean, differences array<string>, seconds double"
)
# The command that reads the whole value of each type, and whether the order of its elements is part of the value.
_READS: dict[bytes, tuple[tuple[bytes, ...], tuple[bytes, ...]]] = {
    b"string": ((b"GET",), ()),
    b"list": ((b"LRANGE",), (b"0", b"-1")),
    b"set": ((b"SMEMBERS",), ()),
    b"zset": ((b"ZRANGE",), (b"0", b"-1", b"WITHSCORES")),
    b"hash": ((b"HGETALL",), ()),
}


@dataclass
class KeysMigrated:
    """The result of one part of a migration, which is one row of its report."""

    part: int
    keys: int = 0
    copied: int = 0
    rebuilt: int = 0
    deleted: int = 0
    rounds: int = 0
    source_digest: str = ""
    target_digest: str = ""
    equal: bool = False
    differences: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class KeysPlan:
    """The options of a migration of keys."""

    source: TableOptions
    target: TableOptions
    pattern: str
    prefix: str
    policy: str
    follow: bool
    follow_for: float | None


def migrate_keys(
    spark: SparkSession, source: Mapping[str, str], target: Mapping[str, str], *, pattern: str = "*",
    policy: str = REFUSE, prefix: str = "", follow: bool = False, follow_for: float | None = None,
) -> DataFrame:  # fmt: skip
    """Copy the keys that match a glob, of every type but streams; return the report as a DataFrame.

    source, target: connection options. prefix: added before each key at the target. policy: `refuse` fails if the
    target has such keys; `resume` and `replace` make them equal to the source's, and delete those that it lacks. No
    policy replaces a stream of the target by a key of another type: this is an error.
    """
    plan = KeysPlan(*checked_sides(source, target, policy, pattern), pattern, prefix, policy, follow, follow_for)
    return spark.createDataFrame([astuple(one) for one in copy_keys(TaskRunner.using(spark), plan)], _SCHEMA)


def checked_sides(
    source: Mapping[str, str], target: Mapping[str, str], policy: str, pattern: str
) -> tuple[TableOptions, TableOptions]:
    """Return the checked options of both sides; raise one OptionError that lists every error."""
    wrong = [] if policy in POLICIES else [f"policy is {policy!r}: expected one of {', '.join(POLICIES)}"]
    wrong += [] if pattern else ["pattern is empty"]
    sides = []
    for side, given in (("source", source), ("target", target)):
        try:
            sides.append(parse_table({**given, "type": "keys"}))
        except OptionError as error:
            wrong.append(f"of the {side}: {str(error).removeprefix('rillet: ')}")
    if wrong:
        raise OptionError("rillet: " + "; ".join(wrong))
    require_store(sides[0].path)
    return sides[0], sides[1]


def copy_keys(runner: TaskRunner, plan: KeysPlan, show: Progress = silent) -> list[KeysMigrated]:
    """Copy each part of the keys in a task."""
    with Servers(plan.source) as source:
        amount = key_count(source), memory_of(source.masters())
    parts = _planned(plan, runner.parallelism_for(*amount))
    tasks = [(_copied, plan, number, len(parts), part) for number, part in enumerate(parts)]
    results: list[KeysMigrated] = runner.run(tasks, show, *amount)
    return sorted(results, key=lambda one: one.part)


def _copied(plan: KeysPlan, number: int, parts: int, part: ScanPart) -> KeysMigrated:
    with plainly():
        return KeyCopy(plan, number, parts, part).run()


def _planned(plan: KeysPlan, parallelism: int) -> list[ScanPart]:
    """Return the parts of the source's keys; raise PipelineError if the migration must not begin."""
    with Servers(plan.source) as source, Servers(plan.target) as target:
        if not plan.prefix and (str(source) == str(target) or not places(source).isdisjoint(places(target))):
            raise PipelineError(
                f"rillet: source and target are the same server, {source}: give a prefix or another target"
            )
        if plan.policy == REFUSE:
            with Servers(plan.target) as scanning:
                for part in plan_scan(scanning, 1):
                    for keys in KeyScan(scanning, part, _glob_at_target(plan)).batches(AT_ONCE):
                        _refuse_existing(plan, source, target, keys)
        return plan_scan(source, parallelism, lasting=plan.source.path is None)


def _refuse_existing(plan: KeysPlan, source: Servers, target: Servers, keys: Sequence[bytes]) -> None:
    """Raise PipelineError if a key of the target exists, unless it is the copy of a stream, which `migrate` made."""
    kinds = _each(target, [(key, (b"TYPE", key)) for key in keys])
    streams = [key for key, kind in zip(keys, kinds, strict=True) if kind == b"stream"]
    names = [key[len(plan.prefix.encode()) :] for key in streams]
    origins = _each(source, [(name, (b"TYPE", name)) for name in names])
    copies = {key for key, origin in zip(streams, origins, strict=True) if origin == b"stream"}
    for key, kind in zip(keys, kinds, strict=True):
        if kind != b"none" and key not in copies:
            remedy = "continue with resume, which makes such keys equal to the source's"
            if kind == b"stream":
                remedy = "it is a stream, which this migration does not replace: delete it, or give a prefix"
            raise PipelineError(f"rillet: {shown(key)} already exists at {target}: {remedy}")


def _glob_at_target(plan: KeysPlan) -> bytes:
    return escaped(plan.prefix) + plan.pattern.encode()


@dataclass
class _Value:
    """A key's type, content and remaining lifetime in ms (-1: it never expires)."""

    kind: bytes
    content: Any = None
    lifetime: int = -1
    times: dict[bytes, int] | None = field(default_factory=dict)
    """The fields of a hash that expire, in ms since the epoch; None if the server lacks field expiry."""

    @property
    def exists(self) -> bool:
        """Return whether the key exists and is copied by this module."""
        return self.kind not in (b"none", b"stream")

    def digest(self, key: bytes) -> int:
        """Return a hash of the key, its type and its content."""
        if not self.exists:
            return 0
        parts = self.content if isinstance(self.content, (list, tuple)) else [self.content]
        texts = (b"" if part is None else part for part in parts)
        return xxh3_128_intdigest(b"".join(b"%d:%b" % (len(text), text) for text in (key, self.kind, *texts)))


class KeyCopy:
    """Copies one part of the keys, and verifies it."""

    def __init__(self, plan: KeysPlan, number: int, parts: int, part: ScanPart) -> None:
        self.plan = plan
        self.number = number
        self.parts = parts
        self.part = part
        self.outcome = KeysMigrated(number)
        self.source: Servers
        self.target: Servers

    def run(self) -> KeysMigrated:
        """Copy the keys, follow the source if requested, and verify the copy."""
        plan, outcome = self.plan, self.outcome
        began = monotonic()
        with Servers(plan.source) as source, Servers(plan.target) as target:
            source.waits = target.waits = True
            self.source, self.target = source, target
            while True:
                outcome.rounds += 1
                changed = self._round()
                over = plan.follow_for is not None and monotonic() - began > plan.follow_for
                if not plan.follow or not changed or over:
                    break
                time.sleep(_PAUSE)
            self._verify()
        outcome.seconds = monotonic() - began
        return outcome

    def _keys(self) -> Iterator[list[bytes]]:
        with Servers(self.plan.source) as scanning:
            scanning.waits = True
            yield from KeyScan(scanning, self.part, self.plan.pattern.encode()).batches(AT_ONCE)

    def _round(self) -> int:
        """Copy what differs, delete what the source lacks; return the number of changes at the target."""
        changed = 0
        for keys in self._keys():
            for key, mine, theirs in self._pairs(keys):
                if mine.exists and not _equal(mine, theirs):
                    if theirs.kind == b"stream":
                        to = shown(self.plan.prefix.encode() + key)
                        raise PipelineError(
                            f"rillet: {to} is a stream at {self.target}, and a {mine.kind.decode()} at the source: a "
                            "stream is not replaced; delete it, or give a prefix"
                        )
                    self._copy(key, mine)
                    changed += 1
        if self.plan.policy != REFUSE or self.outcome.rounds > 1 or self.plan.follow:
            changed += self._delete_extra()
        return changed

    def _pairs(self, keys: Sequence[bytes]) -> list[tuple[bytes, _Value, _Value]]:
        prefix = self.plan.prefix.encode()
        mine = self._values(self.source, keys)
        theirs = self._values(self.target, [prefix + key for key in keys])
        return list(zip(keys, mine, theirs, strict=True))

    def _values(self, servers: Servers, keys: Sequence[bytes]) -> list[_Value]:
        """Return the values of keys; a value that changes its type meanwhile is read again."""
        kinds = _each(servers, [(key, (b"TYPE", key)) for key in keys])
        requests: list[tuple[bytes, tuple[bytes, ...]]] = []
        for key, kind in zip(keys, kinds, strict=True):
            before, after = _READS.get(kind, ((b"TYPE",) if kind in (b"none", b"stream") else (b"DUMP",), ()))
            requests += [(key, (*before, key, *after)), (key, (b"PTTL", key))]
        replies = _each(servers, requests, ("WRONGTYPE",))
        found = []
        for place, kind in enumerate(kinds):
            content, lifetime = replies[2 * place], replies[2 * place + 1]
            if isinstance(content, ReplyError):
                found += self._values(servers, keys[place : place + 1])
                continue
            if content is None or content == [] or lifetime == -2:
                kind = b"none" if kind != b"stream" else kind
            elif kind == b"array":
                content = _array_content(content)
            elif kind == b"set":
                content = sorted(content)
            elif kind == b"hash":
                pairs = sorted(zip(content[::2], content[1::2], strict=True))
                content = [word for pair in pairs for word in pair]
            elif kind == b"zset":
                pairs = sorted(zip(content[::2], content[1::2], strict=True))
                content = [word for member, score in pairs for word in (member, repr(float(score)).encode())]
            found.append(_Value(kind, content, lifetime if isinstance(lifetime, int) else -1))
        self._add_times(servers, keys, found)
        return found

    @staticmethod
    def _add_times(servers: Servers, keys: Sequence[bytes], values: list[_Value]) -> None:
        """Read the times at which the fields of hashes expire."""
        hashes = [(key, value) for key, value in zip(keys, values, strict=True) if value.kind == b"hash"]
        requests: list[tuple[bytes, tuple[bytes, ...]]] = []
        for key, value in hashes:
            names = value.content[::2]
            requests.append((key, (b"HPEXPIRETIME", key, b"FIELDS", b"%d" % len(names), *names)))
        replies = _each(servers, requests, ("ERR", "WRONGTYPE"))
        for (_, value), reply in zip(hashes, replies, strict=True):
            value.times = None
            if not isinstance(reply, ReplyError):
                pairs = zip(value.content[::2], reply, strict=True)
                value.times = {name: when for name, when in pairs if when > 0}

    # ---- changes at the target ----

    def _copy(self, key: bytes, value: _Value) -> None:
        """Copy a value by DUMP and RESTORE, or build it again if the target rejects the payload."""
        to = self.plan.prefix.encode() + key
        payload, left = _each(self.source, [(key, (b"DUMP", key)), (key, (b"PTTL", key))])
        if not isinstance(payload, bytes) or left == -2:
            return  # deleted meanwhile: `_delete_extra` of the next round follows
        lasts = 0 if left < 0 else max(left, 1)  # 0: it never expires
        words = (b"RESTORE", to, b"%d" % lasts, payload, b"REPLACE")
        (reply,) = retry(self.target, partial(self.target.replies, to, [words]))
        if isinstance(reply, ReplyError):
            text = str(reply)
            if value.kind not in _READS or not ("payload" in text or "Bad data format" in text):
                raise ConnectorError(f"rillet: {self.target} rejected RESTORE of {shown(to)}: {text}", text)
            self._rebuild(to, value, lasts)
            self.outcome.rebuilt += 1
        self.outcome.copied += 1

    def _rebuild(self, to: bytes, value: _Value, lasts: int) -> None:
        """Build a value by commands under a temporary key, and rename the key."""
        temporary = record_key(to, "migrate")
        commands: list[tuple[bytes, ...]] = [(b"UNLINK", temporary)]
        content = value.content
        if value.kind == b"string":
            commands.append((b"SET", temporary, content))
        else:
            verb = {b"list": b"RPUSH", b"set": b"SADD", b"zset": b"ZADD", b"hash": b"HSET"}[value.kind]
            if value.kind == b"zset":
                content = [word for at in range(0, len(content), 2) for word in (content[at + 1], content[at])]
            commands += [(verb, temporary, *content[at : at + _CHUNK]) for at in range(0, len(content), _CHUNK)]
        if value.times and self._has_field_expiry(to):
            commands += [
                (b"HPEXPIREAT", temporary, b"%d" % when, b"FIELDS", b"1", name) for name, when in value.times.items()
            ]
        if lasts:
            commands.append((b"PEXPIRE", temporary, b"%d" % lasts))
        commands.append((b"RENAME", temporary, to))
        retry(self.target, partial(self.target.calls, to, commands))

    def _has_field_expiry(self, key: bytes) -> bool:
        """Return whether the target knows the commands of field expiry; if not, name the key in the report."""
        words = (b"HPEXPIRETIME", key, b"FIELDS", b"1", b"f")
        (reply,) = retry(self.target, partial(self.target.replies, key, [words]))
        if not isinstance(reply, ReplyError) or reply.prefix == "WRONGTYPE":
            return True
        if len(self.outcome.differences) < _NAMED:
            self.outcome.differences.append(f"{shown(key)} loses the expiry of its fields: {self.target} has none")
        return False

    def _delete_extra(self) -> int:
        """Delete the target's keys that the source does not have; return their number."""
        prefix = self.plan.prefix.encode()
        deleted = 0
        with Servers(self.plan.target) as scanning:
            scanning.waits = True
            # Tasks plan at different times, so a single server is not divided by the size of its table.
            parts = [ScanPart(SHARES, self.number, self.parts)]
            if scanning.is_cluster:
                parts = plan_scan(scanning, self.parts)[self.number :: self.parts]
            for part in parts:
                for keys in KeyScan(scanning, part, _glob_at_target(self.plan)).batches(AT_ONCE):
                    kinds = _each(self.target, [(key, (b"TYPE", key)) for key in keys])
                    there = [key for key, kind in zip(keys, kinds, strict=True) if kind not in (b"stream", b"none")]
                    names = [key[len(prefix) :] for key in there]
                    exist = _each(self.source, [(name, (b"EXISTS", name)) for name in names])
                    extra = [key for key, exists in zip(there, exist, strict=True) if exists == 0]
                    deleted += sum(_each(self.target, [(key, (b"UNLINK", key)) for key in extra]))
        self.outcome.deleted += deleted
        return deleted

    # ---- verification ----

    def _verify(self) -> None:
        """Compare all keys of the part once more; set the digests and the differences."""
        outcome = self.outcome
        here = there = different = 0
        for keys in self._keys():
            for key, mine, theirs in self._pairs(keys):
                if not mine.exists:
                    continue
                outcome.keys += 1
                here ^= mine.digest(key)
                there ^= theirs.digest(key)
                if not _equal(mine, theirs):
                    different += 1
                    if len(outcome.differences) < _NAMED:
                        outcome.differences.append(f"{shown(key)} {_difference(mine, theirs)}")
        if different > _NAMED:
            outcome.differences.append(f"and {different - _NAMED} more keys")
        outcome.source_digest, outcome.target_digest = f"{here:032x}", f"{there:032x}"
        outcome.equal = not different


def _each(
    servers: Servers, requests: list[tuple[bytes, tuple[bytes, ...]]], allowed: tuple[str, ...] = ()
) -> list[Any]:
    """Send one command for each key; repeat all after a lost connection (reads, UNLINK and RESTORE may be repeated).

    An error reply raises ConnectorError, unless its first word is allowed.
    """
    replies = retry(servers, partial(servers.each, requests)) if requests else []
    for (key, words), reply in zip(requests, replies, strict=True):
        if isinstance(reply, ReplyError) and reply.prefix not in allowed:
            text = str(reply)
            raise ConnectorError(f"rillet: {servers} rejected {words[0].decode()} of {shown(key)}: {text}", text)
    return replies


def _array_content(payload: bytes) -> Any:
    """Return the insert index, the indexes and the values in a DUMP payload; the payload, if it cannot be read."""
    try:
        cells = rdb.restore(payload).cells  # type: ignore[attr-defined]
    except (RilletError, IndexError, AttributeError):
        return payload
    items = [word for index, value in cells.items() for word in (b"%d" % index, value)]
    return [b"%d" % cells.insert_index, *items]


def _equal(mine: _Value, theirs: _Value) -> bool:
    if mine.kind != theirs.kind or mine.content != theirs.content:
        return False
    if mine.times is not None and theirs.times is not None and mine.times != theirs.times:
        return False
    if min(mine.lifetime, theirs.lifetime) < 0:
        return mine.lifetime == theirs.lifetime
    return abs(mine.lifetime - theirs.lifetime) <= LIFETIME


def _difference(mine: _Value, theirs: _Value) -> str:
    """Return how two values differ, as text."""
    if not theirs.exists:
        return "is missing at the target"
    if mine.kind != theirs.kind:
        return f"is a {mine.kind.decode()} at the source, a {theirs.kind.decode()} at the target"
    if mine.content == theirs.content and mine.times != theirs.times:
        return "has fields that expire at another time"
    return "differs" if mine.content != theirs.content else f"expires in {mine.lifetime} and {theirs.lifetime} ms"
