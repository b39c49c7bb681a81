"""The fast paths of GEOADD, GEODIST, GEOPOS and GEOSEARCH, and the conversion of GEOADD's positions to scores.

    GEOADD k 13.36 38.11 m     -> zadd k 3479099956230698 m, executed and logged

GEODIST and GEOPOS support sorted sets at rest and skiplists, GEOSEARCH circles and boxes in skiplists: a member that is
found is a record of three numbers until the reply. The handlers in members.py and search.py execute everything else:
missing keys, other types, units in upper case, ANY, errors.
"""

from __future__ import annotations

from typing import Any

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.geo.replies import write_coordinate, write_distance
from rillet.commands.small_values import SmallValuePath
from rillet.commands.zset.fast_path import ZaddFastPath
from rillet.keyspace import rest_buffer
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.geohash import LATITUDE, LONGITUDE, SearchArea, distance, encode, latitude_of, longitude_of
from rillet.structs.integer_text import decimal
from rillet.structs.listpack import Listpack
from rillet.types.packed_zset import score_at
from rillet.types.zset import Zset

if not cython.compiled:  # the compiled module gets these C names from its .pxd file
    from rillet.commands.small_values import HEADER, MOST_WORDS, NOT_INT
    from rillet.structs.float_text import parse_plain

UNITS = {b"m": 1.0, b"km": 1000.0, b"ft": 0.3048, b"mi": 1609.34}
"""The metres of each unit."""
VALKEY_NEAR = 1e-15
"""Valkey treats longitudes that differ by a few nanometres as equal."""
_MILE = cython.declare(cython.double, UNITS[b"mi"])
_FOOT = cython.declare(cython.double, UNITS[b"ft"])
_VALKEY_NEAR = cython.declare(cython.double, VALKEY_NEAR)
_NEARBY = cython.declare(cython.double, 1e-9)  # degrees: the half of it has a sine above VALKEY_NEAR
_ZSET = cython.declare(cython.int, rest_buffer.ZSET)
_LONGITUDE = cython.declare(cython.double, LONGITUDE)
_LATITUDE = cython.declare(cython.double, LATITUDE)


@cython.final
@cython.cclass
class GeoaddFastPath(ZaddFastPath):
    """The fast path of GEOADD without options."""

    __slots__ = ("_call",)
    _call: ArgumentSpans  # the ZADD

    def __init__(self) -> None:
        self.name = b"geoadd"
        self._call = ArgumentSpans()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute the ZADD of the scores, or return False without any effect."""
        at: cython.Py_ssize_t
        longitude: cython.double
        latitude: cython.double
        if words.count < 5 or (words.count - 2) % 3 or words.count > MOST_WORDS:
            return False
        argv: list[bytes] = [b"ZADD" if session.engine.settings.compat.valkey else b"zadd", words.get(1)]
        for at in range(2, words.count, 3):
            longitude = parse_plain(words.at[at], words.size[at])
            latitude = parse_plain(words.at[at + 1], words.size[at + 1])
            # NaN, which stands for an unusual text, is not in range either.
            if not (-_LONGITUDE <= longitude <= _LONGITUDE and -_LATITUDE <= latitude <= _LATITUDE):
                return False
            argv.append(decimal(encode(longitude, latitude)))
            argv.append(words.get(at + 2))
        self._call.take(argv, 0, len(argv))
        if not ZaddFastPath.one(self, session, db, self._call):
            return False
        return not session.logged or session.propagate(argv)


@cython.cclass
class GeoFastPath(SmallValuePath):
    """What the other paths have in common: they find the scores of members."""

    __slots__ = ("_score", "_table")
    _score: cython.double
    _table: Dict | None  # the members of a skiplist; None for a sorted set at rest, which is in the buffer

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _find_set(self, db: Database, words: ArgumentSpans) -> cython.bint:
        """Find the sorted set and count the access, or return False without any effect."""
        n: cython.Py_ssize_t = self.find(db, words)
        if n < 0:
            return False
        value: object = db.keys.object_at(n)
        self._table = None
        if value is None:
            if db.buffer.load(db.keys, n) != _ZSET:
                return False
        elif type(value) is not Zset or value.skiplist is None:
            return False
        else:
            self._table = value.table
        db.hits += 1
        return self.touch(db, n)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _find_score(self, db: Database, words: ArgumentSpans, i: cython.Py_ssize_t) -> cython.bint:
        """Set `_score` to the score of the member words[i]; return False if there is no such member."""
        table: Dict | None = self._table
        if table is None:
            packed: Listpack = db.buffer.packed
            pos: cython.Py_ssize_t = packed.find_span(HEADER, words.at[i], words.size[i], 1)
            if pos == -1:
                return False
            self._score = score_at(packed, packed.skip(pos))
            return True
        n: cython.Py_ssize_t = table.find_span(words.at[i], words.size[i])
        if n < 0:
            return False
        self._score = table.score(n)
        return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def unit_of(words: ArgumentSpans, index: cython.Py_ssize_t) -> cython.double:
    """Return the metres of a unit in lower case, 0 for any other argument."""
    if words.equals(index, b"km"):
        return 1000.0
    if words.equals(index, b"m"):
        return 1.0
    if words.equals(index, b"mi"):
        return _MILE
    return _FOOT if words.equals(index, b"ft") else 0.0


@cython.final
@cython.cclass
class GeodistFastPath(GeoFastPath):
    """The fast path of GEODIST."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"geodist"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a GEODIST, or return False without any effect."""
        unit: cython.double = 1.0
        score: cython.double
        if words.count == 5:
            unit = unit_of(words, 4)
            if unit == 0.0:
                return False
        elif words.count != 4:
            return False
        if not self._find_set(db, words):
            return False
        if not self._find_score(db, words, 2):
            return session.out.null()
        score = self._score
        if not self._find_score(db, words, 3):
            return session.out.null()
        one: cython.double = longitude_of(score)
        other: cython.double = longitude_of(self._score)
        near: cython.double = 0.0
        if -_NEARBY < one - other < _NEARBY and session.engine.settings.compat.valkey:
            near = _VALKEY_NEAR
        return write_distance(
            session.out, distance(one, latitude_of(score), other, latitude_of(self._score), near) / unit
        )


@cython.final
@cython.cclass
class GeoposFastPath(GeoFastPath):
    """The fast path of GEOPOS."""

    __slots__ = ()

    def __init__(self) -> None:
        self.name = b"geopos"

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a GEOPOS, or return False without any effect."""
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        if words.count < 2 or not self._find_set(db, words):
            return False
        as_score: cython.bint = session.engine.settings.compat.knows(80)
        out.array(words.count - 2)
        for i in range(2, words.count):
            if not self._find_score(db, words, i):
                out.null_array()
                continue
            out.array(2)
            write_coordinate(out, longitude_of(self._score), as_score)
            write_coordinate(out, latitude_of(self._score), as_score)
        return True


@cython.final
@cython.cclass
class GeosearchFastPath(GeoFastPath):
    """The fast path of GEOSEARCH."""

    __slots__ = ("_area", "_count", "_descending", "_sorted", "_with")
    _area: SearchArea
    _with: cython.int  # a bit for each of WITHDIST, WITHHASH and WITHCOORD

    def __init__(self) -> None:
        self.name = b"geosearch"
        self._area = SearchArea()

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def one(self, session: Session, db: Database, words: ArgumentSpans) -> cython.bint:
        """Execute a GEOSEARCH, or return False without any effect."""
        area: SearchArea = self._area
        n: cython.Py_ssize_t = self.find(db, words) if words.count >= 7 else -1
        if n < 0:
            return False
        value: object = db.keys.object_at(n)
        if type(value) is not Zset or value.skiplist is None or value.table is None:
            return False
        table: Dict = value.table
        self._table = table
        if not self._parse(db, words):
            return False
        area.near = _VALKEY_NEAR if session.engine.settings.compat.valkey else 0.0
        count: cython.Py_ssize_t = area.collect(value.skiplist, table)
        if count < 0:
            return False
        if self._sorted:
            area.order(count, self._descending)
        if 0 < self._count < count:
            if self._has_ties(self._count):
                return False
            count = self._count
        db.hits += 1
        self.touch(db, n)
        return self._reply(session, table, count)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _parse(self, db: Database, words: ArgumentSpans) -> cython.bint:
        """Parse the options; return False for unusual ones."""
        area: SearchArea = self._area
        at: cython.Py_ssize_t = 2
        centre: cython.bint = False
        shape: cython.bint = False
        size: cython.double
        other: cython.double
        self._count = self._with = 0
        self._sorted = self._descending = False
        while at < words.count:
            if words.is_option(at, b"fromlonlat") and at + 2 < words.count and not centre:
                area.longitude = parse_plain(words.at[at + 1], words.size[at + 1])
                area.latitude = parse_plain(words.at[at + 2], words.size[at + 2])
                # Also False for NaN, which stands for an unusual text.
                centre = -_LONGITUDE <= area.longitude <= _LONGITUDE and -_LATITUDE <= area.latitude <= _LATITUDE
                if not centre:
                    return False
                at += 2
            elif words.is_option(at, b"frommember") and at + 1 < words.count and not centre:
                if not self._find_score(db, words, at + 1):
                    return False
                area.longitude = longitude_of(self._score)
                area.latitude = latitude_of(self._score)
                centre = True
                at += 1
            elif words.is_option(at, b"byradius") and at + 2 < words.count and not shape:
                size = parse_plain(words.at[at + 1], words.size[at + 1])
                area.unit = unit_of(words, at + 2)
                if not size >= 0.0 or area.unit == 0.0:
                    return False
                area.by_radius(size)
                shape = True
                at += 2
            elif words.is_option(at, b"bybox") and at + 3 < words.count and not shape:
                size = parse_plain(words.at[at + 1], words.size[at + 1])
                other = parse_plain(words.at[at + 2], words.size[at + 2])
                area.unit = unit_of(words, at + 3)
                if not (size >= 0.0 and other >= 0.0) or area.unit == 0.0:
                    return False
                area.by_box(size, other)
                shape = True
                at += 3
            elif words.is_option(at, b"count") and at + 1 < words.count:
                self._count = words.number(at + 1)
                if self._count <= 0:
                    return False
                self._sorted = True
                at += 1
            elif words.is_option(at, b"asc") or words.is_option(at, b"desc"):
                self._sorted = True
                self._descending = words.size[at] == 4
            elif words.is_option(at, b"withdist"):
                self._with |= 1
            elif words.is_option(at, b"withhash"):
                self._with |= 2
            elif words.is_option(at, b"withcoord"):
                self._with |= 4
            else:
                return False
            at += 1
        return centre and shape

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _has_ties(self, count: cython.Py_ssize_t) -> cython.bint:
        """Return whether the order of the first `count` of more members depends on Redis's partial sort."""
        i: cython.Py_ssize_t
        for i in range(count):
            if self._area.distance_at(i) == self._area.distance_at(i + 1):
                return True
        return False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _reply(self, session: Session, table: Dict, count: cython.Py_ssize_t) -> cython.bint:
        """Reply with the first `count` members that were found."""
        area: SearchArea = self._area
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        score: cython.double
        at: cython.p_const_uchar
        as_score: cython.bint = self._with != 0 and session.engine.settings.compat.knows(80)
        extra: cython.int = (self._with & 1) + (self._with >> 1 & 1) + (self._with >> 2)
        out.array(count)
        for i in range(count):
            if extra:
                out.array(1 + extra)
            at = table.key_span(area.entry_at(i))
            if cython.compiled:
                out.bulk_span(at, table.span_size)
            else:
                out.bulk(bytes(at[: table.span_size]))
            if extra == 0:
                continue
            score = area.score_at(i)
            if self._with & 1:
                write_distance(out, area.distance_at(i) / area.unit)
            if self._with & 2:
                out.integer(int(score) if -9223372036854775808.0 <= score < 9223372036854775808.0 else NOT_INT)
            if self._with & 4:
                out.array(2)
                write_coordinate(out, longitude_of(score), as_score)
                write_coordinate(out, latitude_of(score), as_score)
        return True


@cython.ccall
def members_with_scores(argv: list[Any], first: cython.Py_ssize_t) -> Any:
    """Return the scores and members of the arguments `longitude latitude member ...` from `first` on.

    Return None for positions that the handler must parse: other notations, and errors.
    """
    words: list[Any] = []
    i: cython.Py_ssize_t
    text: bytes
    longitude: cython.double
    latitude: cython.double
    for i in range(first, len(argv), 3):
        text = argv[i]
        longitude = parse_plain(text, len(text))
        text = argv[i + 1]
        latitude = parse_plain(text, len(text))
        # Also False for NaN, which is what `parse_plain` returns for a number that it does not support.
        if not (-_LONGITUDE <= longitude <= _LONGITUDE and -_LATITUDE <= latitude <= _LATITUDE):
            return None
        words.append(decimal(encode(longitude, latitude)))
        words.append(argv[i + 2])
    return words


__all__ = [
    "UNITS", "VALKEY_NEAR", "GeoFastPath", "GeoaddFastPath", "GeodistFastPath", "GeoposFastPath", "GeosearchFastPath",
    "members_with_scores",
]  # fmt: skip
