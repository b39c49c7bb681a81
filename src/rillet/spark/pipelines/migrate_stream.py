"""One stream from server to server, with all that belongs to it: what a task of `migrate` does.

    DUMP ──► RESTORE                          small, and the target takes the payload: equal to the last byte
    or
    pages of XRANGE ──► XADD with their IDs   the entries, forwarded as bytes (forward.py)
    XINFO, XPENDING ──► XGROUP, XCLAIM        groups, consumers, what is pending: owner, time, count
    XINFO STREAM    ──► XSETID, PEXPIREAT     entries-added, max-deleted-entry-id, last-generated-id, expiry

Every step compares both sides and carries over what differs, so the same code copies, resumes, and catches up with a
source that is still written to (`follow`): entries go on after the target's last-generated-id, what the source
deleted or trimmed meanwhile is deleted, groups are set to where they are now.

**Pending entries whose entry was deleted** are carried, too: XCLAIM wants the entry to be there, so a placeholder is
added in its place and deleted when it was claimed; XSETID puts the counters right afterwards. Where a stream goes on
after a stop, an entry below the target's last ID can not be added any more, and is named as missing.

**What commands cannot carry** is said in `notes`: when consumers were last seen and active; what idempotent producers
have sent; entries released by XNACK, where the target does not know it. RESTORE carries all of that. Times of delivery
are those of the source's clock; one that lies in the target's future becomes the target's present.

**Verified** by reading both sides: one digest of all entries, the counters of XINFO STREAM, each group, its consumers,
every pending entry. Memory is a page of each side, whatever the stream's size.
"""

from __future__ import annotations

import hashlib
import heapq
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.spark.options import Options
from rillet.spark.pipelines.copying import RawEntry, RawEntryWriter, RawPages
from rillet.spark.pipelines.group_info import PendingRow, pending_pages, xinfo_consumers, xinfo_groups, xinfo_stream
from rillet.types.stream.id import MAX, StreamID

REFUSE, RESUME, REPLACE = "refuse", "resume", "replace"
SMALL = 8 << 20  # bytes of MEMORY USAGE up to which DUMP is asked for
LAST = StreamID(MAX, MAX)
_ATTEMPTS = 3
_PAUSE = 0.2  # seconds between two looks at a source that is followed
_CLOCKS = 2  # milliseconds by which a time of delivery may differ
_COUNTERS = ("length", "last-generated-id", "max-deleted-entry-id", "entries-added")
_PLACEHOLDER = (2, b"$1\r\n-\r\n$1\r\n-\r\n")


@dataclass
class StreamMigrated:
    """What became of a stream: a row of the report."""

    stream: str
    target: str
    how: str = ""
    entries: int = 0
    bytes: int = 0
    groups: int = 0
    pending: int = 0
    rounds: int = 0
    digest: str = ""
    equal: bool = False
    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Plan:
    """How streams are to be copied."""

    source: Options
    target: Options
    policy: str = REFUSE
    follow: bool = False
    follow_for: float | None = None
    small: int = SMALL
    verify: bool = True


def copy_stream(plan: Plan, key: bytes, to: bytes) -> StreamMigrated:
    """Copy one stream and verify it; what fails is the outcome's difference, not an exception."""
    outcome = StreamMigrated(_shown(key), _shown(to))
    began = time.monotonic()
    policy = plan.policy
    for attempt in range(_ATTEMPTS):
        try:
            with Servers(plan.source) as source, Servers(plan.target) as target:
                _Copy(plan, source, target, key, to, outcome).run(policy)
            break
        except ConnectionLost as error:
            policy = RESUME  # what is there now is ours
            if attempt == _ATTEMPTS - 1:
                outcome.differences = [_said(error)]
        except ConnectorError as error:
            outcome.differences = [_said(error)]
            break
    outcome.seconds = time.monotonic() - began
    return outcome


def _shown(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _said(error: Exception) -> str:
    return str(error).removeprefix("rillet: ")


def _id(raw: Any) -> StreamID:
    return StreamID.parse(raw)


class _Copy:
    """One stream's way, over two servers."""

    def __init__(
        self, plan: Plan, source: Servers, target: Servers, key: bytes, to: bytes, outcome: StreamMigrated
    ) -> None:
        self.plan = plan
        self.source, self.target = source, target
        self.key, self.to = key, to
        self.outcome = outcome
        self.placeholders: list[bytes] = []
        self.forwarded = 0  # entries of the last round

    def run(self, policy: str) -> None:
        """Copy, catch up as long as that is asked for, and verify."""
        there = xinfo_stream(self.target, self.to)
        if there is not None and policy == REPLACE:
            self.target.call(self.to, b"UNLINK", self.to)
            there = None
        elif there is not None and policy == REFUSE:
            raise ConnectorError(f"rillet: the stream {self.outcome.target!r} is at {self.target} already")
        self.outcome.how = self.outcome.how or ("resumed" if there is not None else "rebuilt")
        if there is None and self._restore():
            self.outcome.how = "restored"
        else:
            self._round()
        self._catch_up()

    def _catch_up(self) -> None:
        """Verify; with `follow`, carry over what is new until both sides are equal, or what differs stays the same."""
        plan, outcome = self.plan, self.outcome
        deadline = None if plan.follow_for is None else time.monotonic() + plan.follow_for
        before: list[str] | None = None
        while True:
            over = not plan.follow or (deadline is not None and time.monotonic() > deadline)
            # The counters first. Nothing new and yet another length: something was deleted, which the comparison finds.
            if over or not self.forwarded or self._settled():
                self._compare()
                if over or outcome.equal or (not self.forwarded and outcome.differences == before):
                    return
                before = outcome.differences
            time.sleep(_PAUSE)
            self._round()

    def _compare(self) -> None:
        """Compare as thoroughly as is asked for; the outcome says what differs."""
        if self.plan.verify:
            self._verify()
            return
        self.outcome.differences = self._counters() + self._group_counters()
        self.outcome.equal = not self.outcome.differences

    def _facts(self) -> dict[str, Any]:
        found = xinfo_stream(self.source, self.key)
        if found is None:
            raise ConnectorError(f"rillet: there is no stream {self.outcome.stream!r} at {self.source}")
        return found

    # -- all at once

    def _restore(self) -> bool:
        """Carry the stream over as a DUMP payload; False where it is too large, or the target does not take it."""
        (size,) = self.source.replies(self.key, [(b"MEMORY", b"USAGE", self.key)])
        self._facts()
        if not isinstance(size, int) or size > self.plan.small:
            return False
        payload, left = self.source.replies(self.key, [(b"DUMP", self.key), (b"PTTL", self.key)])
        if not isinstance(payload, bytes):
            return False
        words = (b"RESTORE", self.to, b"%d" % max(left, 0), payload)
        (reply,) = self.target.replies(self.to, [words])
        if isinstance(reply, ReplyError):
            if reply.prefix in ("NOPERM", "OOM", "READONLY", "MISCONF", "BUSYKEY"):
                raise ConnectorError(f"rillet: {self.target} refused RESTORE of {self.outcome.target!r}: {reply}")
            self.outcome.note(f"rebuilt, since the target does not take the payload: {reply}")
            return False
        self.outcome.bytes += len(payload)
        self.outcome.rounds = 1
        return True

    # -- step by step

    def _round(self) -> None:
        """Carry over what the target lacks at this moment."""
        facts = self._facts()
        self.outcome.rounds += 1
        self.forwarded = 0
        there = self._prepare(facts)
        self._forward(_id(there["last-generated-id"]), _id(facts["last-generated-id"]))
        self._groups()
        if self.placeholders:
            self._delete(self.placeholders)
            self.placeholders = []
        self._settle()

    def _prepare(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Have a stream at the target that ends where the source's does, or before."""
        there = xinfo_stream(self.target, self.to)
        if there is None:
            scratch = b"rillet-migrate"
            create = (b"XGROUP", b"CREATE", self.to, scratch, b"0", b"MKSTREAM")
            self.target.calls(self.to, [create, (b"XGROUP", b"DESTROY", self.to, scratch)])
            there = xinfo_stream(self.target, self.to)
            assert there is not None
        if _id(there["last-generated-id"]) > _id(facts["last-generated-id"]):
            raise ConnectorError(
                f"rillet: the stream {self.outcome.target!r} at {self.target} ends at "
                f"{_shown(there['last-generated-id'])}, beyond the source's {_shown(facts['last-generated-id'])}: "
                "somebody else writes to it, or it is another stream"
            )
        return there

    def _forward(self, start: StreamID, last: StreamID) -> None:
        """Append the source's entries of (start, last], with placeholders for pending ones that were deleted."""
        if start >= last:
            return
        writer = RawEntryWriter(self.target, self.to)
        wanted = self._pending_ids(start, last)
        due = next(wanted, None)
        with RawPages(self.plan.source, self.key, start, last) as pages:
            for page in pages:
                if due is None:
                    writer.add(page)
                    continue
                merged: list[RawEntry] = []
                for one in page:
                    identifier = _id(one.id)
                    while due is not None and due < identifier:
                        merged.append(self._placeholder(due))
                        due = next(wanted, None)
                    if due == identifier:
                        due = next(wanted, None)
                    merged.append(one)
                writer.add(merged)
        while due is not None:
            writer.add([self._placeholder(due)])
            due = next(wanted, None)
        writer.finish()
        self.outcome.bytes += writer.bytes
        self.forwarded = writer.written

    def _placeholder(self, identifier: StreamID) -> RawEntry:
        raw = b"%d-%d" % identifier
        self.placeholders.append(raw)
        return RawEntry(raw, *_PLACEHOLDER)

    def _pending_ids(self, start: StreamID, last: StreamID) -> Iterator[StreamID]:
        """Yield the IDs in (start, last] that are pending in any group of the source, in order, each once."""
        low, high = b"(%d-%d" % start, b"%d-%d" % last
        pages = [
            pending_pages(self.source, self.key, group["name"], start=low, end=high)
            for group in xinfo_groups(self.source, self.key) if group["pending"]
        ]  # fmt: skip
        lists = [(one.id for page in of_group for one in page) for of_group in pages]
        before: StreamID | None = None
        for identifier in heapq.merge(*lists):
            if identifier != before:
                yield identifier
            before = identifier

    def _delete(self, ids: list[bytes]) -> None:
        for at in range(0, len(ids), 1000):
            self.target.call(self.to, b"XDEL", self.to, *ids[at : at + 1000])

    # -- groups

    def _groups(self) -> None:
        """Make the target's groups what the source's are."""
        wanted = {group["name"]: group for group in xinfo_groups(self.source, self.key)}
        there = {group["name"] for group in xinfo_groups(self.target, self.to)}
        for name in there - wanted.keys():
            self.target.call(self.to, b"XGROUP", b"DESTROY", self.to, name)
        for name, group in wanted.items():
            verb = b"SETID" if name in there else b"CREATE"
            words = [b"XGROUP", verb, self.to, name, group["last-delivered-id"]]
            if group.get("entries-read") is not None:
                words += [b"ENTRIESREAD", b"%d" % group["entries-read"]]
            self.target.call(self.to, *words)
            self._group(name)

    def _group(self, name: bytes) -> None:
        """Make consumers and pending entries of one group what they are at the source."""
        wanted = {one["name"]: one for one in xinfo_consumers(self.source, self.key, name)}
        there = {one["name"] for one in xinfo_consumers(self.target, self.to, name)}
        new = [(b"XGROUP", b"CREATECONSUMER", self.to, name, one) for one in wanted.keys() - there]
        self.target.calls(self.to, new)
        claims: list[PendingRow] = []
        gone: list[bytes] = []
        for mine, theirs in self._both_pending(name):
            if mine is None:
                assert theirs is not None
                gone.append(b"%d-%d" % theirs.id)
            elif theirs is None or not _alike(mine, theirs):
                claims.append(mine)
            if len(claims) >= 500:
                claims = self._claim(name, claims)
        self._claim(name, claims)
        for at in range(0, len(gone), 1000):
            self.target.call(self.to, b"XACK", self.to, name, *gone[at : at + 1000])
        old = [(b"XGROUP", b"DELCONSUMER", self.to, name, one) for one in there - wanted.keys()]
        self.target.calls(self.to, old)
        if wanted:
            self.outcome.note("when consumers were last seen and active is not carried by commands")

    def _both_pending(self, name: bytes) -> Iterator[tuple[PendingRow | None, PendingRow | None]]:
        """Yield what is pending at the source and at the target, paired by ID."""
        with Servers(self.plan.target) as reading:  # its pages are read while claims go out
            mine = (one for page in pending_pages(self.source, self.key, name) for one in page)
            theirs = (one for page in pending_pages(reading, self.to, name) for one in page)
            here, there = next(mine, None), next(theirs, None)
            while here is not None or there is not None:
                if there is None or (here is not None and here.id < there.id):
                    yield here, None
                    here = next(mine, None)
                elif here is None or there.id < here.id:
                    yield None, there
                    there = next(theirs, None)
                else:
                    yield here, there
                    here, there = next(mine, None), next(theirs, None)

    def _claim(self, name: bytes, claims: list[PendingRow]) -> list[PendingRow]:
        """Make entries pending as they are at the source; one command for those that differ by their ID alone."""
        alike: dict[tuple[bytes, int, int], list[bytes]] = {}
        for one in claims:
            alike.setdefault((one.consumer, one.delivered, one.deliveries), []).append(b"%d-%d" % one.id)
        commands = []
        for (consumer, delivered, deliveries), ids in alike.items():
            count = (b"RETRYCOUNT", b"%d" % deliveries)
            if consumer:
                when = (b"TIME", b"%d" % delivered, *count, b"FORCE", b"JUSTID")
                commands.append((b"XCLAIM", self.to, name, consumer, b"0", *ids, *when))
            else:
                commands.append((b"XNACK", self.to, name, b"SILENT", b"IDS", b"%d" % len(ids), *ids, *count, b"FORCE"))
        for words, reply in zip(commands, self.target.replies(self.to, commands), strict=True):
            if isinstance(reply, ReplyError):
                if words[0] == b"XNACK":
                    self.outcome.note(f"released entries (XNACK) are not carried: {reply}")
                    continue
                raise ConnectorError(f"rillet: {self.target} refused XCLAIM in {self.outcome.target!r}: {reply}")
        return []

    def _settle(self) -> None:
        """Set the counters and the expiry to the source's."""
        facts = self._facts()
        # Trimmed here, so trimmed there; not before the groups, since XCLAIM wants the entries.
        first = facts.get("first-entry")
        bound = (b"MINID", b"=", first[0]) if first else (b"MAXLEN", b"=", b"0")
        self.target.call(self.to, b"XTRIM", self.to, *bound)
        words = [b"XSETID", self.to, facts["last-generated-id"]]
        if "entries-added" in facts:
            words += [b"ENTRIESADDED", b"%d" % facts["entries-added"], b"MAXDELETEDID", facts["max-deleted-entry-id"]]
        (reply,) = self.target.replies(self.to, [words])
        if isinstance(reply, ReplyError):
            # More entries, or later ones, than the source has by now: the next round, or the verification, tells.
            self.outcome.note(f"counters were not set: {reply}")
        if facts.get("pids-tracked"):
            self.outcome.note("what idempotent producers have sent is not carried by commands")
        (left,) = self.source.calls(self.key, [(b"PTTL", self.key)])
        if left >= 0:
            self.target.call(self.to, b"PEXPIRE", self.to, b"%d" % left)
        else:
            self.target.call(self.to, b"PERSIST", self.to)

    # -- verification

    def _settled(self) -> bool:
        """Whether the counters agree at this moment, of the stream and of its groups."""
        return not self._counters() and not self._group_counters()

    def _counters(self) -> list[str]:
        here, there = self._facts(), xinfo_stream(self.target, self.to)
        if there is None:
            return ["the target has gone"]
        return [
            f"{name} is {_value(here[name])} at the source, {_value(there[name])} at the target"
            for name in _COUNTERS if name in here and name in there and here[name] != there[name]
        ]  # fmt: skip

    def _group_counters(self) -> list[str]:
        here = {group["name"]: group for group in xinfo_groups(self.source, self.key)}
        there = {group["name"]: group for group in xinfo_groups(self.target, self.to)}
        self.outcome.groups = len(there)
        self.outcome.pending = sum(group["pending"] for group in there.values())
        wrong = [f"the group {_shown(name)!r} is missing" for name in sorted(here.keys() - there.keys())]
        wrong += [f"the group {_shown(name)!r} is at the target only" for name in sorted(there.keys() - here.keys())]
        for name in sorted(here.keys() & there.keys()):
            for fact, value in here[name].items():
                other = there[name].get(fact, value)
                if fact not in ("name", "lag") and other != value:
                    values = f"{_value(value)} at the source, {_value(other)} at the target"
                    wrong.append(f"{fact} of the group {_shown(name)!r} is {values}")
        return wrong

    def _verify(self) -> None:
        """Compare everything; note what differs. Entries that only the target has are deleted, once."""
        extra = self._compare_entries()
        if extra:
            self._delete(extra)
            self._settle()
            self._compare_entries()
        outcome = self.outcome
        outcome.differences += self._counters() + self._group_counters()
        for group in xinfo_groups(self.source, self.key):
            outcome.differences += self._compare_group(group["name"])
        outcome.equal = not outcome.differences

    def _compare_entries(self) -> list[bytes]:
        """Read both sides; return the IDs that only the target has."""
        outcome = self.outcome
        outcome.differences = []
        extra: list[bytes] = []
        missing = other = 0
        first = b""
        digest = hashlib.sha256()
        start = StreamID(0, 0)
        outcome.entries = 0
        with (
            RawPages(self.plan.source, self.key, start, LAST) as pages,
            RawPages(self.plan.target, self.to, start, LAST) as pages_there,
        ):
            for here, there in _paired(iter(pages), iter(pages_there)):
                digest.update(b"".join([b"%b %b" % (one.id, one.body) for one in there]))
                outcome.entries += len(there)
                if here != there:
                    known = {one.id: one for one in there}
                    lost = [one.id for one in here if one.id not in known]
                    first = first or (lost[0] if lost else b"")
                    missing += len(lost)
                    other += sum(known.get(one.id, one) != one for one in here)
                    ours = {one.id for one in here}
                    extra += [one.id for one in there if one.id not in ours]
        outcome.digest = digest.hexdigest()
        if missing:
            outcome.differences.append(f"{missing} entries are missing, the first is {_shown(first)}")
        if other:
            outcome.differences.append(f"{other} entries differ")
        if extra:
            outcome.differences.append(f"{len(extra)} entries are at the target only, the first is {_shown(extra[0])}")
        return extra

    def _compare_group(self, name: bytes) -> list[str]:
        """Compare consumers and pending entries of a group."""
        here = {one["name"]: one["pending"] for one in xinfo_consumers(self.source, self.key, name)}
        there = {one["name"]: one["pending"] for one in xinfo_consumers(self.target, self.to, name)}
        wrong = [] if here == there else [f"the consumers of the group {_shown(name)!r} differ"]
        missing = other = extra = 0
        for mine, theirs in self._both_pending(name):
            missing += theirs is None
            extra += mine is None
            other += mine is not None and theirs is not None and not _alike(mine, theirs)
        for count, what in ((missing, "missing"), (extra, "at the target only"), (other, "different")):
            if count:
                wrong.append(f"{count} pending entries of the group {_shown(name)!r} are {what}")
        return wrong


def _alike(mine: PendingRow, theirs: PendingRow) -> bool:
    return (
        mine.consumer == theirs.consumer
        and mine.deliveries == theirs.deliveries
        and abs(mine.delivered - theirs.delivered) <= _CLOCKS
    )


def _value(fact: object) -> str:
    return _shown(fact) if isinstance(fact, bytes) else str(fact)


def _paired(
    here: Iterator[list[RawEntry]], there: Iterator[list[RawEntry]]
) -> Iterator[tuple[list[RawEntry], list[RawEntry]]]:
    """Yield the entries of both sides in pieces that cover the same IDs."""
    mine, theirs = next(here, []), next(there, [])
    while mine or theirs:
        if not mine or not theirs:
            yield mine, theirs
            mine, theirs = next(here, []), next(there, [])
            continue
        end, end_there = _id(mine[-1].id), _id(theirs[-1].id)
        if end == end_there:
            yield mine, theirs
            mine, theirs = next(here, []), next(there, [])
        elif end < end_there:
            cut = sum(_id(one.id) <= end for one in theirs)
            yield mine, theirs[:cut]
            mine, theirs = next(here, []), theirs[cut:]
        else:
            cut = sum(_id(one.id) <= end_there for one in mine)
            yield mine[:cut], theirs
            mine, theirs = mine[cut:], next(there, [])
