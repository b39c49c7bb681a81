"""Sealing: the oldest nodes of streams go into segments on disk when the streams exceed `stream-memory`.

    WATCHING ──too much──► WRITING ──────────► SYNCING ─────────────► REPLACING ────────────► WATCHING
                           nodes are copied     a thread syncs and     nodes that are still
                           into a file, some    names the file         the same become a range
                           in each step                                of the segment; each
                                                                       step is logged

**The rule of the order.** A node leaves memory only when its segment is synced and has its name. At the same moment the
log says so (RILLET.SEAL), behind the commands that added the node. A rewrite of the log then writes the range instead
of the node, and only so does the log forget the node's commands. So at any moment the files of the log, with the
segments that they name, contain every entry exactly once:

    power fails before the sync       the segment has no name; the log has the commands
    ... before RILLET.SEAL is synced  the segment is complete and unused; the log has the commands
    ... after it                      a replay adds the entries, and the command replaces them by the segment's
    ... after a rewrite               the base names the segment

A node that changes while its segment is written stays in memory. A segment that is in no stream any more is removed
when a rewrite that began later has finished, and its base does not name it. One that is held for a reader stays until
the hold ends. If deletions leave at most half of a segment's nodes, these return to memory, and go into others; the log
says so, too (RILLET.UNSEAL).

The limit includes what belongs to a node beside its bytes, and the indexes of segments that are in memory. Sealing
begins before the limit is reached, so that the streams stay below it while a segment is written. If commands add faster
than the steps seal, the streams exceed the limit, and the steps grow with the excess.

Costs: a step copies or replaces 128 KiB, and the next one follows after a pause in which commands run, so others wait
for less than a millisecond; above the limit up to sixteen times as much. Time and bytes of a rewrite, and of an
opening, depend on what is in memory. Rejected:
sealing in a thread beside the engine (the bytes of a node must not change while they are read), and segments as a part
of the base (a rewrite would copy history).
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from typing import NamedTuple, Protocol

from rillet.errors import SegmentUnreadable
from rillet.keyspace.database import Database
from rillet.loggers import logger
from rillet.persistence.aof.log import AppendOnlyLog
from rillet.persistence.aof.rewrite import Rewriting
from rillet.persistence.aof.states import ON
from rillet.persistence.rdb.plain_keys import key_of, versioned_values
from rillet.persistence.rdb.reader import read_aux_fields
from rillet.persistence.rdb.records import SEGMENT_NAMES
from rillet.persistence.segments.compression import compressor
from rillet.persistence.segments.folder import INDEX_BYTES, SegmentFolder
from rillet.persistence.segments.segment import Sealed, Segment, SegmentWriter
from rillet.runtime.engine import Engine
from rillet.structs.listpack import Listpack
from rillet.types.stream.nodes import NodeIterator, SealedNodes
from rillet.types.stream.stream import Stream

LOGGER = logger("log")
SEGMENT_BYTES = 32 << 20
"""The bytes of nodes after which a segment is complete."""
_STEP = 1 << 17  # bytes that a step copies or replaces, in less than a millisecond
_FASTEST = 16  # times a step, if the streams exceed the limit by an eighth
_NODE = 256  # bytes in memory beside those of a node: its objects, and its place in the tree
_LEAST = 1 << 20  # bytes of a segment if the limit is not exceeded by more
_SOON = 1 << 22  # bytes of nodes that an opening loads in a moment
_FACTS = 1 << 20  # bytes at the begin of a base that hold the names of its segments
_RETRY_TICKS = 50  # after an error of the disk
WATCHING, WRITING, SYNCING, REPLACING = range(4)


class LogAndRewriting(Protocol):
    """A log and its rewrites: an AofService."""

    log: AppendOnlyLog
    rewriting: Rewriting


class _Node(NamedTuple):
    """A node that was written: its number in the segment, its key, and the object in memory."""

    number: int
    key: bytes
    node: Listpack
    follows: bool  # whether it follows the node before it in the stream, too


class _Work:
    """One segment that is being written for one stream."""

    def __init__(self, database: Database, key: bytes, stream: Stream, writer: SegmentWriter, most: int,
                 others: int) -> None:  # fmt: skip
        self.database = database
        self.key = key
        self.stream = stream
        self.writer = writer
        self.most = most
        self.others = others  # bytes of everything else, at the begin
        self.position = b""
        self.nodes: list[_Node] = []
        self.replaced = 0
        self.sealed: Sealed | None = None
        self.segment: Segment | None = None
        self.error: OSError | None = None
        self.thread: threading.Thread | None = None

    def is_alive(self) -> bool:
        """Return whether the key still has the stream."""
        return self.database.peek(self.key) is self.stream

    def sync(self) -> None:
        """Put the segment on the disk; runs in a thread."""
        try:
            self.writer.sync()
            self.sealed = self.writer.finish()
        except OSError as error:
            self.error = error


def _memory_of(stream: Stream) -> int:
    """Return the bytes of a stream's nodes in memory, with what belongs to them. O(1)"""
    return stream.node_bytes + _NODE * (stream.rax.numele - stream.ranges)


class Sealing:
    """Keeps the streams of an engine within a limit; every method requires the engine's lock."""

    def __init__(self, engine: Engine, folder: SegmentFolder, limit: int, aof: LogAndRewriting) -> None:
        """limit: bytes of the nodes of all streams in memory."""
        self.limit = limit
        self._engine = engine
        self._folder = folder
        self._aof = aof
        self._compress = compressor() if engine.settings.stream_compression == "zstd" else None
        self._threshold = limit - min(limit // 8, SEGMENT_BYTES)
        folder.cache.limit = min(INDEX_BYTES, max(limit // 8, _LEAST))
        self._phase = WATCHING
        self._work: _Work | None = None
        self._wait = 0
        self._place: tuple[Database, bytes] | None = None
        self._unreadable: set[Segment] = set()
        self._loading: threading.Thread | None = None
        self._unused: set[str] = set()
        self._in_base: set[str] = set()  # unused, but the last rewrite names them
        self._unused_since = -1  # the number of rewrites when `_unused` was computed
        self._sealed_since_rewrite = 0
        self._rewrites = aof.rewriting.rewrites

    # -- figures -----------------------------------------------------------------------------------------

    def streams(self) -> list[Stream]:
        """Return all streams. O(values that are objects)"""
        return [value for database in self._engine.databases for value in versioned_values(database.keys)
                if isinstance(value, Stream)]  # fmt: skip

    def info(self) -> dict[str, object]:
        """Return the fields of INFO rillet."""
        streams = self.streams()
        names = self._folder.names()
        return {
            "stream_memory_limit": self.limit, "stream_memory_used": sum(stream.node_bytes for stream in streams),
            "stream_nodes_in_segments": sum(stream.sealed for stream in streams),
            "stream_entries_in_segments": sum(stream.sealed_entries for stream in streams),
            "stream_bytes_in_segments": sum(stream.sealed_bytes for stream in streams), "stream_segments": len(names),
            "stream_segment_bytes": self._folder.size_of(names), "stream_index_hits": self._folder.cache.hits,
            "stream_index_misses": self._folder.cache.misses, "stream_cold_reads": self._engine.cold_reads.held,
        }  # fmt: skip

    # -- periodic work -----------------------------------------------------------------------------------

    def tick(self) -> bool:
        """Do the next step; return whether another one is to follow soon."""
        rewriting = self._aof.rewriting
        if rewriting.rewrites != self._rewrites:
            self._rewrites = rewriting.rewrites
            self._sealed_since_rewrite = 0
        if self._wait > 0:
            self._wait -= 1
            return False
        if not self._logs():
            return False
        works = self._phase != WATCHING
        try:
            if self._phase == WATCHING:
                self._watch()
            elif self._phase == WRITING:
                self._write(self._step())
            elif self._phase == SYNCING:
                self._synced()
            elif self._phase == REPLACING:
                self._replace(self._step())
        except (OSError, SegmentUnreadable) as error:
            self._failed(error)
        return works or self._phase != WATCHING  # behind a segment, the next one may be due

    def _step(self) -> int:
        """Return the bytes of the next step: half as many, if each of them is compressed."""
        work = self._of_phase()
        excess = min(work.others + _memory_of(work.stream) - self.limit, self.limit // 8)
        step = _STEP if self._compress is None or self._phase == REPLACING else _STEP // 2
        return step + max(excess, 0) * (_FASTEST - 1) * step // (self.limit // 8)

    def _watch(self) -> None:
        """Begin a segment of the largest stream if the streams are close to the limit."""
        streams = self.streams()
        used = sum(map(_memory_of, streams)) + min(self._folder.memory(), self.limit // 8)
        living = self._living_nodes(streams)
        self._remove_unused(living)
        if used <= self._threshold:
            self._compact(streams, living)
            return
        # Whole segments, but not so little that each node would be a file.
        most = max(min(used - self.limit * 3 // 4, SEGMENT_BYTES), min(self.limit // 8, _LEAST))
        self._begin(max(streams, key=_memory_of), most, used)

    def _begin(self, largest: Stream, most: int, used: int) -> None:
        """Begin a segment of a stream with at most so many bytes of nodes."""
        writer = self._folder.begin(self._engine.clock.now_ms(), self._compress)
        self._work = _Work(*self._place_of(largest), largest, writer, most, used - _memory_of(largest))
        self._phase = WRITING

    def _write(self, left: int) -> None:
        """Copy the next nodes into the segment, about `left` bytes of them."""
        work = self._of_phase()
        if not work.is_alive():
            self._abandon()
            return
        nodes = NodeIterator(work.stream)
        if nodes.seek(">", work.position) and nodes.next():
            more = True
            follows = bool(work.nodes) and work.nodes[-1].key == work.position
            while more and left > 0 and work.writer.node_bytes < work.most:
                if nodes.skip_range():
                    follows, work.position, more = False, nodes.key, nodes.next()
                    continue
                key, node = nodes.key, nodes.node()
                more = nodes.next()
                if not more:  # the last node stays in memory
                    break
                if work.writer.add(key, node):
                    work.nodes.append(_Node(len(work.writer) - 1, key, node, follows))
                    follows = True
                else:
                    follows = False
                work.position = key
                left -= node.used
            if more and work.writer.node_bytes < work.most:
                return
        if not work.nodes:
            self._abandon()
            self._wait = _RETRY_TICKS  # nothing can be sealed: the streams have one node each
            return
        work.writer.close_data()
        if self._aof.log.threads:
            work.thread = threading.Thread(target=work.sync, name="rillet-segment", daemon=True)
            work.thread.start()
        else:
            work.sync()
        self._phase = SYNCING

    def _synced(self) -> None:
        work = self._of_phase()
        if work.thread is not None:
            if work.thread.is_alive():
                return
            work.thread.join()
        if work.error is not None:
            raise work.error
        assert work.sealed is not None
        work.segment = self._folder.add(work.writer, work.sealed)
        self._phase = REPLACING

    def _replace(self, left: int) -> None:
        """Replace the next nodes, about `left` bytes, that are still the same by ranges of the segment, and log it."""
        work = self._of_phase()
        segment = work.segment
        assert segment is not None
        run: list[_Node] = []
        while work.replaced < len(work.nodes) and left > 0 and work.is_alive():
            one = work.nodes[work.replaced]
            if run and not (one.follows and one.number == run[-1].number + 1):
                self._seal(work, segment, run)
                run = []
            work.replaced += 1
            left -= one.node.used
            if work.stream.rax.find(one.key) is one.node and segment.matches(one.number, one.node):
                run.append(one)
            else:
                self._seal(work, segment, run)
                run = []
        self._seal(work, segment, run)
        if work.replaced == len(work.nodes) or not work.is_alive():
            self._over()

    def _seal(self, work: _Work, segment: Segment, run: list[_Node]) -> None:
        if not run:
            return
        first, count = run[0].number, len(run)
        work.stream.seal(SealedNodes(segment, first, count, segment.living_of(first, count)))
        work.database.ledger.note(work.stream)
        self._aof.log.append(work.database.index,
                             [b"RILLET.SEAL", work.key, segment.reference(), b"%d" % first, b"%d" % count])  # fmt: skip
        self._sealed_since_rewrite += sum(one.node.used for one in run)

    def _over(self) -> None:
        self._work = None
        self._phase = WATCHING
        # Earlier processes may have written the log, each less than the limit.
        grown = max(self._sealed_since_rewrite, self._logged_since_base())
        if grown > self.limit and not self._aof.rewriting.in_progress:
            self._aof.rewriting.scheduled = True  # the log forgets the commands of what is sealed

    def _of_phase(self) -> _Work:
        assert self._work is not None
        return self._work

    def _abandon(self) -> None:
        work, self._work = self._of_phase(), None
        self._phase = WATCHING
        work.writer.abandon()

    def _failed(self, error: Exception) -> None:
        """Keep everything in memory, and try again later."""
        LOGGER.warning("%s: nodes of streams cannot be moved to disk: %s", self._folder.path,
                       getattr(error, "strerror", None) or error)  # fmt: skip
        if self._work is not None and self._phase == WRITING:
            try:
                self._abandon()
            except OSError:
                self._work = None
        self._work = None
        self._phase = WATCHING
        self._wait = _RETRY_TICKS

    # -- segments that no stream has any more ------------------------------------------------------------

    @staticmethod
    def _living_nodes(streams: list[Stream]) -> Counter[Segment]:
        """Return how many nodes of each segment streams have. O(ranges)"""
        living: Counter[Segment] = Counter()
        for stream in streams:
            for _, nodes in stream.sealed_ranges():
                living[nodes.source] += nodes.count
        return living

    def _compact(self, streams: list[Stream], living: Counter[Segment]) -> None:
        """Take nodes back into memory that fill at most half of a segment, so that its file can go; they go to others.

        XDEL takes single nodes out of segments. A trim empties the first segment of a stream, which is left alone.
        """
        few = {segment for segment, count in living.items() if 2 * count <= segment.sealed.nodes}
        few -= self._unreadable
        for stream in streams:
            ranges = stream.sealed_ranges() if few else []
            for _, nodes in ranges:
                if nodes.source in few and nodes.source is not ranges[0][1].source:
                    self._take_back(stream, nodes)
                    return

    def _take_back(self, stream: Stream, nodes: SealedNodes) -> None:
        """Take the first nodes of a range into memory, as many as a step copies, and log it; the limit has the room."""
        segment: Segment = nodes.source
        database, key = self._place_of(stream)
        count = 1
        try:
            size = segment.size_in_memory(nodes.first) + _NODE
            count = min(nodes.count, max(min(_STEP, self.limit // 16) // size, 1))
            absent = segment.absent(nodes.first, count)
            if absent is not None and self._aof.log.threads:
                if self._loading is None or not self._loading.is_alive():
                    self._loading = threading.Thread(target=absent.load, name="rillet-segment", daemon=True)
                    self._loading.start()
                return
            stream.unseal(segment, nodes.first, count)
        except SegmentUnreadable as error:
            LOGGER.warning("%s", error)
            self._unreadable.add(segment)
        # Also behind an error: the nodes before the damaged one may be in memory, and a replay stops there, too.
        database.ledger.note(stream)
        numbers = b"%d" % nodes.first, b"%d" % count
        self._aof.log.append(database.index, [b"RILLET.UNSEAL", key, segment.reference(), *numbers])

    def _place_of(self, stream: Stream) -> tuple[Database, bytes]:
        """Return the database and the key of a stream. O(keys), if it was another one the last time"""
        if self._place is None or self._place[0].peek(self._place[1]) is not stream:
            self._place = next((database, key) for database in self._engine.databases
                               if (key := key_of(database.keys, stream)) is not None)  # fmt: skip
        return self._place

    def _remove_unused(self, living: Counter[Segment]) -> None:
        """Remove the segments that were unused before the last rewrite began, and look for others.

        One that the base names stays. The base is written from a replay of the log, so it could name more than this
        process uses. A rewrite writes about the data in memory, so it begins by itself when the unused files have more.
        """
        rewriting = self._aof.rewriting
        if rewriting.in_progress:
            return
        used, held = {segment.path.name for segment in living}, self._folder.held(self._engine.clock.now_ms())
        if rewriting.rewrites > self._unused_since:
            self._in_base = set()
            if self._unused and rewriting.succeeded:
                self._in_base = self._named_in_base(self._unused)
                self._folder.remove(self._unused - self._in_base - held - used)
            elif self._unused:
                return
        elif self._unused:
            return
        self._unused = set(self._folder.names()) - used - self._in_base - held
        self._unused_since = rewriting.rewrites
        if self._unused and self._folder.size_of(self._unused) > min(self.limit, self._engine.used_memory()):
            rewriting.scheduled = True

    def _named_in_base(self, names: set[str]) -> set[str]:
        """Return which of these segments the base of the log names: all of them, if it does not say."""
        log = self._aof.log
        base = log.manifest.base
        if base is None or base.name.endswith(".aof"):  # commands name no segments
            return set()
        named = read_aux_fields(log.folder / base.name, log.disk, _FACTS).get(SEGMENT_NAMES)
        return names if named is None else names.intersection(named.decode().split())

    def shorten_log_at_opening(self) -> None:
        """Rewrite a log that was left behind by lives too short for a rewrite beside the commands. O(bytes in memory)

        Its replay has just taken longer than the rewrite does. Else a store that is killed again and again would keep
        everything that it ever logged.
        """
        if self._logs() and self._logged_since_base() > 2 * max(self.limit, self._engine.used_memory(), _LEAST):
            self._shorten_log()

    def shorten_log_at_end(self) -> None:
        """Prepare the log for an opening that takes a moment: before the store is closed. O(bytes in memory)

        Nodes that take long to load go into segments, and a log that takes long to replay is rewritten.
        """
        least = max(self.limit // 8, _LEAST)
        if self._logs() and (self._seal_now(min(least, _SOON)) or self._logged_since_base() > least):
            self._shorten_log()

    def _seal_now(self, least: int) -> bool:
        """Seal what can be sealed until at most so many bytes are in memory; return whether there was anything."""
        done, before = False, math.inf
        try:
            while not self._wait:
                while self._phase != WATCHING:
                    self._finish_phase()
                streams = self.streams()
                used = sum(map(_memory_of, streams))
                if not least < used < before:
                    break
                self._begin(max(streams, key=_memory_of), SEGMENT_BYTES, used)
                done, before = True, used
        except (OSError, SegmentUnreadable) as error:
            self._failed(error)
        return done

    def _finish_phase(self) -> None:
        """Do the rest of a phase at once."""
        if self._phase == WRITING:
            self._write(SEGMENT_BYTES * 2)
        elif self._phase == SYNCING:
            thread = self._of_phase().thread
            if thread is not None:
                thread.join()
            self._synced()
        elif self._phase == REPLACING:
            self._replace(SEGMENT_BYTES * 2)

    def _logged_since_base(self) -> int:
        log = self._aof.log
        return log.current_size - log.base_size

    def _logs(self) -> bool:
        """Return whether changes can be logged; what cannot be must not leave memory."""
        return self._aof.log.state == ON and self._aof.log.failure is None

    def _shorten_log(self) -> None:
        log = self._aof.log
        try:
            self._aof.rewriting.rewrite_now()
        except OSError as error:
            LOGGER.warning("%s: the log was not rewritten, so the next opening takes longer: %s", log.folder, error)

    def close(self) -> None:
        """End the work; what is not sealed stays in the log."""
        work = self._work
        for thread in (self._loading, None if work is None else work.thread):
            if thread is not None:
                thread.join()
        if work is not None and self._phase == WRITING:
            self._abandon()
        self._folder.close()
