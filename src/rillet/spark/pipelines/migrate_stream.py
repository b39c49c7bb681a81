"""Copies one stream from server to server with its groups, pending entries and counters: the task of `migrate`.

    DUMP ──► RESTORE                          a small stream, if the target accepts the payload: an identical copy
    or
    pages of XRANGE ──► XADD with their IDs   the entries, forwarded as bytes (copying.py)
    XINFO, XPENDING ──► XGROUP, XCLAIM        groups, consumers, pending entries with owner, time and count
    XINFO STREAM    ──► XSETID, PEXPIREAT     entries-added, max-deleted-entry-id, last-generated-id, expiry

Every step compares both servers and copies the differences. So the same code makes the first copy, resumes it,
and follows a source that still receives writes (`follow`): it appends entries after the target's last-generated-id,
deletes entries that the source has deleted or trimmed since, and sets groups to their current state.

**Pending entries whose stream entry was deleted** are copied too. XCLAIM only accepts an ID that is in the stream. So a
placeholder entry with this ID is appended, claimed and deleted; XSETID then corrects the counters. XADD rejects a
placeholder below the target's last ID, as in a resumed run; the pending entry is then reported as missing.

**Not copied by commands** (the `notes` in the report list them): the times when consumers were last seen and active;
the message IDs of idempotent producers; entries released by XNACK, if the target lacks that command. RESTORE copies all
of these. Delivery times are from the source's clock; if a time is in the future by the target's clock, XCLAIM stores
the target's current time.

**The copy is verified** by reading source and target (migrate_compare.py). Both are read in pages, so the
memory does not depend on the stream's size.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from rillet.client.errors import ConnectionLost, ConnectorError
from rillet.client.servers import Servers
from rillet.protocol.reply_parser import ReplyError
from rillet.real_time import monotonic
from rillet.spark.pipelines.copying import RawEntry, RawEntryWriter, RawPages
from rillet.spark.pipelines.group_info import (
    XpendingRow,
    pending_pages,
    shown,
    xinfo_consumers,
    xinfo_groups,
    xinfo_stream,
)
from rillet.spark.pipelines.migrate_compare import (
    REFUSE,
    REPLACE,
    RESUME,
    Plan,
    StreamMigrated,
    StreamPair,
    alike,
)
from rillet.types.stream.id import StreamID

_ATTEMPTS = 3
_PAUSE = 0.2  # with `follow`: seconds between two comparisons of source and target
_PLACEHOLDER = (2, b"$1\r\n-\r\n$1\r\n-\r\n")


def copy_stream(plan: Plan, key: bytes, to: bytes) -> StreamMigrated:
    """Copy and verify one stream; report a failure as a difference in the result instead of raising it."""
    outcome = StreamMigrated(shown(key), shown(to))
    began = monotonic()
    policy = plan.policy
    for attempt in range(_ATTEMPTS):
        try:
            with Servers(plan.source) as source, Servers(plan.target) as target:
                StreamCopy(plan, source, target, key, to, outcome).run(policy)
            break
        except ConnectionLost as error:
            policy = RESUME  # the target now holds entries that this run has copied
            if attempt == _ATTEMPTS - 1:
                outcome.differences = [str(error).removeprefix("rillet: ")]
        except ConnectorError as error:
            outcome.differences = [str(error).removeprefix("rillet: ")]
            break
    outcome.seconds = monotonic() - began
    return outcome


class StreamCopy(StreamPair):
    """Copies one stream; adds to StreamPair the steps that change the target."""

    placeholders: list[bytes]  # The IDs of the placeholder entries appended in the last round.
    forwarded = 0  # The number of entries copied in the last round.

    def run(self, policy: str) -> None:
        """Copy the stream, follow the source if requested, and verify the copy."""
        existing = xinfo_stream(self.target, self.to)
        if existing is not None and policy == REPLACE:
            self.target.call(self.to, b"UNLINK", self.to)
            existing = None
        elif existing is not None and policy == REFUSE:
            raise ConnectorError(f"rillet: the stream {self.outcome.target!r} already exists at {self.target}")
        self.outcome.how = self.outcome.how or ("resumed" if existing is not None else "rebuilt")
        if existing is None and self._restore():
            self.outcome.how = "restored"
        else:
            self._round()
        self._catch_up()

    def _catch_up(self) -> None:
        """Verify the copy; with `follow`, copy new data until both streams are equal or the same differences remain."""
        plan, outcome = self.plan, self.outcome
        deadline = None if plan.follow_for is None else monotonic() + plan.follow_for
        before: list[str] | None = None
        while True:
            over = not plan.follow or (deadline is not None and monotonic() > deadline)
            # Compare the counters first. If they differ although no entry is new, the source has deleted entries:
            # compare all entries to find them.
            if over or not self.forwarded or not self.counter_differences():
                self._compare()
                if over or outcome.equal or (not self.forwarded and outcome.differences == before):
                    return
                before = outcome.differences
            time.sleep(_PAUSE)
            self._round()

    def _compare(self) -> None:
        """Report the differences (--no-verify: only of counters); delete the entries that only the target has."""
        outcome, verify = self.outcome, self.plan.verify
        outcome.differences = []
        if verify and (extra := self.compare_entries()):
            self._delete(extra)
            self._settle()
            self.compare_entries()
        outcome.differences += self.counter_differences()
        for group in xinfo_groups(self.source, self.key) if verify else ():
            outcome.differences += self.group_differences(group["name"])
        outcome.equal = not outcome.differences

    # -- copying by DUMP and RESTORE

    def _restore(self) -> bool:
        """Copy the stream as a DUMP payload; return False if it is too large or the target rejects it."""
        (size,) = self.source.replies(self.key, [(b"MEMORY", b"USAGE", self.key)])
        self.source_info()
        if not isinstance(size, int) or size > self.plan.small:
            return False
        payload, left = self.source.replies(self.key, [(b"DUMP", self.key), (b"PTTL", self.key)])
        if not isinstance(payload, bytes):
            return False
        words = (b"RESTORE", self.to, b"%d" % max(left, 0), payload)
        (reply,) = self.target.replies(self.to, [words])
        if isinstance(reply, ReplyError):
            if reply.prefix in ("NOPERM", "OOM", "READONLY", "MISCONF", "BUSYKEY"):
                raise ConnectorError(f"rillet: {self.target} rejected RESTORE of {self.outcome.target!r}: {reply}")
            self.outcome.note(f"rebuilt, because the target rejects the payload: {reply}")
            return False
        self.outcome.bytes += len(payload)
        self.outcome.rounds = 1
        return True

    # -- copying by commands

    def _round(self) -> None:
        """Copy the entries, groups and counters that the target lacks now."""
        info = self.source_info()
        self.outcome.rounds += 1
        self.forwarded, self.placeholders = 0, []
        existing = self._prepare(info)
        self._forward(StreamID.parse(existing["last-generated-id"]), StreamID.parse(info["last-generated-id"]))
        self._groups()
        self._delete(self.placeholders)
        self._settle()

    def _prepare(self, info: dict[str, Any]) -> dict[str, Any]:
        """Create the target stream if it is missing; raise an error if its last ID is after the source stream's."""
        there = xinfo_stream(self.target, self.to)
        if there is None:
            scratch = b"rillet-migrate"
            create = (b"XGROUP", b"CREATE", self.to, scratch, b"0", b"MKSTREAM")
            self.target.calls(self.to, [create, (b"XGROUP", b"DESTROY", self.to, scratch)])
            there = xinfo_stream(self.target, self.to)
            assert there is not None
        if StreamID.parse(there["last-generated-id"]) > StreamID.parse(info["last-generated-id"]):
            raise ConnectorError(
                f"rillet: the stream {self.outcome.target!r} at {self.target} ends at "
                f"{shown(there['last-generated-id'])}, after the source's {shown(info['last-generated-id'])}: "
                "another client writes to it, or it is a different stream"
            )
        return there

    def _forward(self, start: StreamID, last: StreamID) -> None:
        """Append the source's entries of (start, last], and placeholders for pending entries that were deleted."""
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
                    identifier = StreamID.parse(one.id)
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
        for identifier, _ in groupby(heapq.merge(*lists)):
            yield identifier

    def _delete(self, ids: list[bytes]) -> None:
        for at in range(0, len(ids), 1000):
            self.target.call(self.to, b"XDEL", self.to, *ids[at : at + 1000])

    # -- copying groups

    def _groups(self) -> None:
        """Make the target's groups equal to the source's: create, update and delete groups."""
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
        """Make the consumers and pending entries of one group at the target equal to the source's."""
        wanted = {one["name"]: one for one in xinfo_consumers(self.source, self.key, name)}
        there = {one["name"] for one in xinfo_consumers(self.target, self.to, name)}
        new = wanted.keys() - there
        self.target.calls(self.to, [(b"XGROUP", b"CREATECONSUMER", self.to, name, one) for one in new])
        claims: list[XpendingRow] = []
        gone: list[bytes] = []
        for mine, theirs in self.paired_pending(name):
            if mine is None:
                assert theirs is not None
                gone.append(b"%d-%d" % theirs.id)
            elif theirs is None or not alike(mine, theirs):
                claims.append(mine)
            if len(claims) >= 500:
                claims = self._claim(name, claims)
        self._claim(name, claims)
        for at in range(0, len(gone), 1000):
            self.target.call(self.to, b"XACK", self.to, name, *gone[at : at + 1000])
        old = there - wanted.keys()
        self.target.calls(self.to, [(b"XGROUP", b"DELCONSUMER", self.to, name, one) for one in old])
        if wanted:
            self.outcome.note("commands cannot copy the times when consumers were last seen and active")

    def _claim(self, name: bytes, claims: list[XpendingRow]) -> list[XpendingRow]:
        """Make entries pending at the target, with one XCLAIM for those that differ only in their ID."""
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
                    self.outcome.note(f"released entries (XNACK) were not copied: {reply}")
                    continue
                raise ConnectorError(f"rillet: {self.target} rejected XCLAIM in {self.outcome.target!r}: {reply}")
        return []

    def _settle(self) -> None:
        """Set the counters and the expiry of the target stream to those of the source."""
        info = self.source_info()
        # Trim the target like the source. Copy the groups before, because XCLAIM needs the trimmed entries.
        first = info.get("first-entry")
        bound = (b"MINID", b"=", first[0]) if first else (b"MAXLEN", b"=", b"0")
        self.target.call(self.to, b"XTRIM", self.to, *bound)
        words = [b"XSETID", self.to, info["last-generated-id"]]
        if "entries-added" in info:
            words += [b"ENTRIESADDED", b"%d" % info["entries-added"], b"MAXDELETEDID", info["max-deleted-entry-id"]]
        (reply,) = self.target.replies(self.to, [words])
        if isinstance(reply, ReplyError):
            # The target has more or later entries than the source now; the next round or the verification finds them.
            self.outcome.note(f"the counters could not be set: {reply}")
        if info.get("pids-tracked"):
            self.outcome.note("commands cannot copy the records of idempotent producers")
        (left,) = self.source.calls(self.key, [(b"PTTL", self.key)])
        if left >= 0:
            self.target.call(self.to, b"PEXPIRE", self.to, b"%d" % left)
        else:
            self.target.call(self.to, b"PERSIST", self.to)
