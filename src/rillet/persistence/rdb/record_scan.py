"""Finds the records of an RDB file that is damaged, without reading their values.

    FE 0  FB 3 1 │ 00 key value │ FC ms 12 key value │ 05 k%#~8.... │ 00 key value │ ... FF crc
       record        record            record           gap             record

A record is an opcode with its operands, or a key with the prefixes that belong to it (expiry, idle time, frequency).
The lengths in a value suffice to find its end. If they are damaged, the scan continues at the next place from which the
records follow each other up to the end of the file (or, if there is more damage, at which at least two of them do, with
values that can be loaded). A damaged length may also make a record swallow the records after it, and the scan notices
that only at the next invalid byte, so it looks for this place in the records before the invalid byte, too.

An RDB file has no checksums of records, so bytes inside a damaged value may look like a record. Among several places,
the scan prefers keys whose names are text (if the others are), then places after which no more keys follow than the
file states for the database (FB) minus one, because the gap has at least one; then the place with the most keys.

Costs: O(bytes) without damage; in a gap, one attempt per byte that may begin a record. The results of attempts are kept
by offset, because most attempts soon reach an offset that was tried before.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from rillet.errors import Corrupt
from rillet.persistence.rdb.records import (
    CHECKSUM_SINCE,
    DATABASE,
    END,
    EXPIRE_MS,
    EXPIRE_S,
    FACT,
    FREQUENCY,
    FUNCTION,
    HEADER,
    HEADER_FORM,
    IDLE,
    MAGICS,
    MODULE_AUX,
    SIZES,
    SLOT_SIZES,
    RdbRecord,
    RdbRecords,
)
from rillet.types.rdb.primitives import RdbReader
from rillet.types.rdb.stream import TYPE_SEALED
from rillet.types.rdb.value import NEWEST_VERSION

_CHECKSUM = 8  # bytes after END
_LOOK_BACK = 4  # records before an invalid byte in which a place to continue is searched
_ENOUGH = 2  # keys that must follow each other before more damage
_MOST_PLACES = 200
_LOG = re.compile(rb"\*\d{1,7}\r\n\$\d|#TS:|#RILLET:")  # the beginning of the commands after the base of a log
_SAMPLE = 100

# The types that servers write since RDB version 10; other bytes do not begin a record after a gap.
_WRITTEN_SINCE_10 = frozenset((0, 2, 4, 5, 7, 11, 16, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, TYPE_SEALED))
_OPCODES = frozenset((DATABASE, SIZES, SLOT_SIZES, FUNCTION, MODULE_AUX, FACT, END, IDLE, EXPIRE_MS, EXPIRE_S,
                      FREQUENCY))  # fmt: skip


class _Fate(NamedTuple):
    """What follows an offset: the number of keys, the offset after the last record, whether that is the file's end.

    here: the number of keys until the next database.
    """

    keys: int
    stop: int
    clean: bool
    here: int = 0


class RdbScan:
    """The records and the gaps of an RDB file. `end`: the offset after the file's end, its size if that is missing.

    is_sound: returns whether the value of a record can be loaded. ended: whether the file's end was found.
    """

    def __init__(self, data: bytes, is_sound: Callable[[RdbRecord], bool]) -> None:
        self.data = data
        self.records: list[RdbRecord] = []
        self.gaps: list[tuple[int, int]] = []
        self.end = len(data)
        self.ended = False
        self._is_sound = is_sound
        self._names: set[bytes] = set()  # the encoded names of the keys of the current database
        self._fates: dict[int, _Fate] = {}
        header = HEADER_FORM.match(data[:HEADER])
        self.version = int(header[2]) if header is not None else NEWEST_VERSION
        self._reader = RdbReader(data)
        self._walk = RdbRecords(self._reader, self.version)
        self._first = HEADER if data.startswith(MAGICS) else 0
        kinds = _WRITTEN_SINCE_10 if self.version >= 10 else frozenset((*range(29), TYPE_SEALED))
        self._beginnings = re.compile(b"[" + b"".join(re.escape(bytes((one,))) for one in kinds | _OPCODES) + b"]")
        self._scan()

    def _scan(self) -> None:
        data, at = self.data, self._first
        while at < len(data):
            try:
                record = self._record(at)
                if record.kind == END and not self._is_end(record):
                    raise Corrupt("the end of the file, but more bytes follow")
                if record.kind == DATABASE:
                    self._names.clear()
                elif record.key >= 0:
                    name = data[record.key : record.value]
                    if name in self._names:
                        raise Corrupt("a key that the database already has")
                    self._names.add(name)
            except (Corrupt, IndexError):
                at = self._resync(at)
                continue
            if record.kind == END:
                self.end, self.ended = min(record.end + self._checksum_size, len(data)), True
                return
            if record.key >= 0 and not self._is_likely(record) and (better := self._alternative(record)) >= 0:
                at = self._continue_at(better)
                continue
            self.records.append(record)
            at = record.end

    def _record(self, at: int) -> RdbRecord:
        """Return the record at an offset; Corrupt or IndexError if there is none."""
        self._reader.seek(at)
        return self._walk.record()

    @property
    def _checksum_size(self) -> int:
        return _CHECKSUM if self.version >= CHECKSUM_SINCE else 0

    def _is_end(self, record: RdbRecord) -> bool:
        """Return whether the file, or its RDB part before commands of a log, ends after this record."""
        end = record.end + self._checksum_size
        return end >= len(self.data) or (self._checksum_size > 0 and _LOG.match(self.data, end) is not None)

    # -- after damage --------------------------------------------------------------------------------

    def _resync(self, bad: int) -> int:
        """Record a gap, and return the offset at which the records continue; the size of the file if they do not."""
        self._fates[bad] = _Fate(0, bad, False)
        back = self.records[-_LOOK_BACK:]
        places, window = self._places(back[0].start + 1 if back else bad + 1, bad)
        return self._continue_at(self._best(places, window) if places else len(self.data))

    def _continue_at(self, end: int) -> int:
        """Record the gap before an offset, and return the offset."""
        # A place inside an earlier record shows that this record, and all after it, were read with a wrong length.
        while self.records and self.records[-1].end > end:
            last = self.records.pop()
            self._names.discard(self.data[last.key : last.value])
        begin = self.records[-1].end if self.records else self._first
        while self.gaps and self.gaps[-1][0] >= begin:
            self.gaps.pop()
        self.gaps.append((begin, end))
        return end

    def _is_likely(self, record: RdbRecord) -> bool:
        """Return whether a key's name is text, or some of the names before it are not."""
        return _is_text(self._name(record)) or not self._names_are_text()

    def _names_are_text(self) -> bool:
        # The last records may have been read with a wrong length.
        return all(_is_text(self._name(one)) for one in self.records[-_SAMPLE:-_LOOK_BACK] if one.key >= 0)

    def _alternative(self, unlikely: RdbRecord) -> int:
        """Return the best place inside a record with an unlikely name, or in those before it; -1 if there is none.

        A damaged length may lead to such a record, which swallows others and ends where one of them does.
        """
        places: list[int] = []
        back = self.records[-_LOOK_BACK:]
        for found in self._beginnings.finditer(self.data, (back[0] if back else unlikely).start + 1, unlikely.end):
            place = found.start()
            passed = self._keys_in(place, unlikely.end)
            if (len(passed) >= _ENOUGH and all(one.start != unlikely.start for one in passed)
                    and self._has_likely_names(place) and all(map(self._is_sound, passed[:_ENOUGH]))):  # fmt: skip
                places.append(place)
                self._fate(place)
                if len(places) == _MOST_PLACES:
                    break
        return self._best(places, unlikely.end) if places else -1

    def _keys_in(self, place: int, end: int) -> list[RdbRecord]:
        """Return the keys from one offset to another."""
        following = takewhile(lambda record: record.start < end, self._records_from(place))
        return [record for record in following if record.key >= 0]

    def _places(self, first: int, bad: int) -> tuple[list[int], int]:
        """Return the places from which records continue, and the end of the window in which they were searched.

        If there is none whose first keys have likely names, return the others.
        """
        places: list[int] = []
        unlikely: list[int] = []
        window = len(self.data)
        is_text = self._names_are_text()
        for found in self._beginnings.finditer(self.data, first):
            place = found.start()
            if place > window or len(places) == _MOST_PLACES:
                break
            if not self._continues(place, bad):
                continue
            if is_text and not self._has_likely_names(place):
                unlikely.append(place)
                continue
            places.append(place)
            if place > bad:
                # The first place may be inside a damaged value, and its record may end at the right place or after it.
                window = min(window, self._record(place).end)
        return places or unlikely[:_MOST_PLACES], window

    def _continues(self, place: int, bad: int) -> bool:
        fate = self._fate(place)
        if fate.clean:
            return True
        return fate.keys >= _ENOUGH and fate.stop > bad and all(map(self._is_sound, self._keys_from(place)))

    def _has_likely_names(self, place: int) -> bool:
        names = list(map(self._name, self._keys_from(place)))
        return all(map(_is_text, names)) and len(set(names)) == len(names)

    def _name(self, record: RdbRecord) -> bytes:
        """Return the name of a key, b"" if it is invalid."""
        try:
            return RdbReader(self.data, record.key, record.value).string()
        except (Corrupt, IndexError):
            return b""

    def _fate(self, place: int) -> _Fate:
        """Follow the records from an offset to the end of the file or to an invalid byte."""
        fates, path, at = self._fates, [], place
        while at not in fates:
            try:
                record = self._record(at)
            except (Corrupt, IndexError):
                fates[at] = _Fate(0, at, False)
                break
            if record.kind == END:
                fates[at] = _Fate(0, at, self._is_end(record))
                break
            path.append(record)
            at = record.end
        fate = fates[at]
        for record in reversed(path):
            fate = fates[record.start] = _followed(record, fate)
        return fate

    # -- the best of several places ------------------------------------------------------------------

    def _best(self, places: list[int], window: int) -> int:
        """Return the place with the most keys in the window, if the file may have so many.

        A record that only seems to be one adds a key too many, or swallows records and has too few.
        """
        before = self._counts(self.records[:-_LOOK_BACK])
        return min(places, key=lambda place: (
            not self._is_possible(place, *before), -self._keys_within(place, window), place))  # fmt: skip

    def _is_possible(self, place: int, stated: int, read: int) -> bool:
        """Return whether the current database may have the keys that were read and those that follow.

        stated, read: the counts before the last records.
        """
        last = [record for record in self.records[-_LOOK_BACK:] if record.end <= place]
        again, more = self._counts(last)
        stated, read = (again, more) if again >= 0 else (stated, read + more)
        # If the last records are sound, a key in the gap is lost; if not, one of them is.
        read -= not all(self._is_sound(record) for record in last if record.key >= 0)
        return stated < 0 or read > stated or read + self._fates[place].here <= stated

    def _counts(self, records: list[RdbRecord]) -> tuple[int, int]:
        """Return the keys that the file states for the last database (-1: unknown), and how many were read. O(keys)"""
        read = 0
        for record in reversed(records):
            if record.key < 0 and record.kind in (SIZES, DATABASE):
                return (RdbReader(self.data, record.start + 1).length() if record.kind == SIZES else -1), read
            read += record.key >= 0
        return -1, read

    def _keys_within(self, place: int, window: int) -> int:
        """Return the number of keys after a place in the window, and of the sound ones just before it."""
        before = [record for record in self.records[-_LOOK_BACK:] if record.key >= 0 and record.end <= place]
        keys = sum(_is_text(self._name(record)) and self._is_sound(record) for record in before)
        for record in self._records_from(place):
            if record.start >= window:
                break
            keys += record.key >= 0
        return keys

    def _keys_from(self, place: int) -> list[RdbRecord]:
        """Return the first keys from an offset on, as many as suffice for an attempt."""
        return list(islice((record for record in self._records_from(place) if record.key >= 0), _ENOUGH))

    def _records_from(self, place: int) -> Iterator[RdbRecord]:
        """Yield the records from an offset to the end of the file or to an invalid byte."""
        with contextlib.suppress(Corrupt, IndexError):
            while (record := self._record(place)).kind != END:
                yield record
                place = record.end


def _followed(record: RdbRecord, fate: _Fate) -> _Fate:
    """Return the fate of a record, from that of the offset after it."""
    if record.key >= 0:
        return _Fate(fate.keys + 1, fate.stop, fate.clean, fate.here + 1)
    return _Fate(fate.keys, fate.stop, fate.clean, 0 if record.kind in (DATABASE, SIZES) else fate.here)


def _is_text(name: bytes) -> bool:
    try:
        return len(name) > 0 and name.decode().isprintable()
    except UnicodeDecodeError:
        return False
