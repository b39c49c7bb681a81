"""GEOSEARCH, GEORADIUS and their variants: the members near a position (Redis: geo.c, georadiusGeneric).

    GEORADIUS, GEORADIUSBYMEMBER           a circle around a position or a member; may STORE
    GEORADIUS_RO, GEORADIUSBYMEMBER_RO     the same without STORE
    GEOSEARCH                              any centre, and a circle or a box; in Valkey also a polygon
    GEOSEARCHSTORE                         the same, stored in a sorted set

A search reads up to nine ranges of scores, in Redis's order. COUNT sorts by distance, unless ANY ends the search at so
many results. Equal distances keep the order of the search, except that COUNT sorts as Redis's pqsort does.
"""

from __future__ import annotations

import struct

from rillet._cython import cython
from rillet.commands.arguments import integer, small_integer, syntax_error, text
from rillet.commands.geo import command
from rillet.commands.geo.members import check_position, near, unit_of
from rillet.commands.geo.replies import write_coordinate, write_distance
from rillet.commands.set.operations import store_result
from rillet.commands.table_replies import write_entry
from rillet.commands.zset.members import score_of
from rillet.commands.zset.values import zset_at
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.dict import Dict
from rillet.structs.geohash import SearchArea, latitude_of, longitude_of
from rillet.structs.listpack import HEADER_SIZE, Listpack
from rillet.structs.sorting import partial_order
from rillet.types.packed_zset import score_at
from rillet.types.zset import Zset

_AROUND_POSITION = cython.declare(cython.int, 1)
_AROUND_MEMBER = cython.declare(cython.int, 2)
_SEARCH = cython.declare(cython.int, 3)
_SEARCH_STORE = cython.declare(cython.int, 4)
# The form of each command, and whether it has the options STORE and STOREDIST.
_FORMS = {
    "georadius": (1, True), "georadius_ro": (1, False), "georadiusbymember": (2, True),
    "georadiusbymember_ro": (2, False), "geosearch": (3, False), "geosearchstore": (4, False),
}  # fmt: skip
# Kinds of centres and shapes; 0: not given.
_MEMBER = cython.declare(cython.int, 1)
_POSITION = cython.declare(cython.int, 2)
_CIRCLE = cython.declare(cython.int, 1)
_BOX = cython.declare(cython.int, 2)
_POLYGON = cython.declare(cython.int, 3)
# The parts of a reply after the member.
_DISTANCE = cython.declare(cython.int, 1)
_SCORE = cython.declare(cython.int, 2)
_COORDINATES = cython.declare(cython.int, 4)
_HALF_EARTH = 20_020_734.0
_BIG_ENDIAN = struct.Struct(">d")
_HEADER = cython.declare(cython.Py_ssize_t, HEADER_SIZE)
_LEAST_INTEGER = cython.declare(cython.longlong, -(2**63))
_COMPLEXITY = (
    "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as "
    "the filter and M is the number of items inside the shape"
)
_OPTIONS = "[WITHCOORD] [WITHDIST] [WITHHASH] [<COUNT count [ANY]@6.2.0>] [ASC | DESC]"
_UNIT = "<M | KM | FT | MI>"


_STORE = " [<STORE key | STOREDIST key>]"
_CENTRE = "<FROMMEMBER member | FROMLONLAT longitude latitude>"
_SHAPE = f"<BYRADIUS radius {_UNIT} | BYBOX width height {_UNIT}>"


@cython.final
@cython.cclass
class Geosearch(Implementation):
    """All commands of this file; the attributes are the arguments of a call.

    _form: of the command, 0 before its first call. _store_at: the position of the key that gets the result, 0: none.
    _table, _packed: the members. _picked: the records in the order of the reply, or None if they are in order.
    """

    __slots__ = (
        "_any", "_area", "_count", "_descending", "_form", "_may_store", "_packed", "_picked", "_sorted",
        "_store_at", "_store_distances", "_table", "_wanted",
    )  # fmt: skip
    _area: SearchArea
    _form: cython.int
    _may_store: cython.bint
    _any: cython.bint
    _count: cython.longlong
    _sorted: cython.bint
    _descending: cython.bint
    _store_at: cython.Py_ssize_t
    _store_distances: cython.bint
    _wanted: cython.int
    _table: Dict | None
    _packed: Listpack | None
    _picked: list[int] | None

    def __init__(self) -> None:
        self._area = SearchArea()
        self._form = 0
        self._table = self._packed = self._picked = None

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the members in the area, or store them."""
        db: Database = session.db
        found: cython.Py_ssize_t = 0
        if self._form == 0:
            self._form, self._may_store = _FORMS[self.command.fullname]
        value: Zset | None = zset_at(db, db.locate_read(words, 2 if self._form == _SEARCH_STORE else 1))
        self._area.near = near(db)
        self._picked = None
        self._parse(session, words, value)
        if value is not None:
            self._table = value.table
            self._packed = value.listpack
            found = self._find(value)
        if self._store_at:
            self._store(session, words, found)
        else:
            self._reply(session, found)
        self._table = self._packed = None
        return True

    # -- arguments -------------------------------------------------------------------------------------

    @cython.cfunc
    def _parse(self, session: Session, words: ArgumentSpans, value: Zset | None) -> cython.bint:
        area: SearchArea = self._area
        search: cython.bint = self._form >= _SEARCH
        valkey: cython.bint = session.db.buffer.valkey
        centre: cython.int = 0
        shape: cython.int = 0
        at: cython.Py_ssize_t = 2
        left: cython.Py_ssize_t
        self._count = 0
        self._wanted = 0
        self._any = self._sorted = self._descending = self._store_distances = False
        self._store_at = 1 if self._form == _SEARCH_STORE else 0
        area.unit = 1.0
        if self._form == _AROUND_POSITION:
            self._read_position(session, words, 2)
            self._read_radius(session, words, 4)
            at = 6
        elif self._form == _AROUND_MEMBER:
            if value is not None:
                self._read_member(session, words, 2, value)
                self._read_radius(session, words, 3)
            at = 5
        elif self._form == _SEARCH_STORE:
            at = 3
        while at < words.count:
            left = words.count - at - 1
            if words.is_option(at, b"withdist"):
                self._wanted |= _DISTANCE
            elif words.is_option(at, b"withhash"):
                self._wanted |= _SCORE
            elif words.is_option(at, b"withcoord"):
                self._wanted |= _COORDINATES
            elif words.is_option(at, b"any"):
                self._any = True
            elif words.is_option(at, b"asc") or words.is_option(at, b"desc"):
                self._sorted = True
                self._descending = words.size[at] == 4
            elif left and words.is_option(at, b"count"):
                self._count = integer(words.get(at + 1))
                if self._count <= 0:
                    raise CommandError("COUNT must be > 0")
                at += 1
            elif not search:
                if not (left and self._may_store and (words.is_option(at, b"store")
                                                      or words.is_option(at, b"storedist"))):  # fmt: skip
                    raise syntax_error()
                self._store_distances = words.size[at] == 9
                at += 1
                self._store_at = at
            elif self._form == _SEARCH_STORE and words.is_option(at, b"storedist"):
                self._store_distances = True
            elif left and centre != _POSITION and shape != _POLYGON and words.is_option(at, b"frommember"):
                if value is not None:
                    self._read_member(session, words, at + 1, value)
                centre = _MEMBER
                at += 1
            elif left > 1 and centre != _MEMBER and shape != _POLYGON and words.is_option(at, b"fromlonlat"):
                self._read_position(session, words, at + 1)
                centre = _POSITION
                at += 2
            elif left > 1 and (shape == 0 or shape == _CIRCLE) and words.is_option(at, b"byradius"):
                self._read_radius(session, words, at + 1)
                shape = _CIRCLE
                at += 2
            elif left > 2 and (shape == 0 or shape == _BOX) and words.is_option(at, b"bybox"):
                self._read_box(session, words, at + 1)
                shape = _BOX
                at += 3
            elif (valkey and left > 1 and centre == 0 and (shape == 0 or shape == _POLYGON)
                  and words.is_option(at, b"bypolygon")):  # fmt: skip
                at += self._read_polygon(session, words, at + 1)
                shape = _POLYGON
            else:
                raise syntax_error()
            at += 1
        if self._store_at and self._wanted:
            what = "GEOSEARCHSTORE" if self._form == _SEARCH_STORE else "STORE option in GEORADIUS"
            raise CommandError(f"{what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")
        if search and centre == 0 and shape != _POLYGON:
            raise CommandError(f"exactly one of FROMMEMBER or FROMLONLAT can be specified for {text(words.get(0))}")
        if search and shape == 0:
            shapes = "BYRADIUS, BYBOX and BYPOLYGON" if valkey else "BYRADIUS and BYBOX"
            raise CommandError(f"exactly one of {shapes} can be specified for {text(words.get(0))}")
        if self._any and self._count == 0:
            raise CommandError("the ANY argument requires COUNT argument")
        return True

    @cython.cfunc
    def _read_position(self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        self._area.longitude = score_of(session, words, at)
        self._area.latitude = score_of(session, words, at + 1)
        return check_position(self._area.longitude, self._area.latitude)

    @cython.cfunc
    def _read_member(
        self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t, value: Zset
    ) -> cython.bint:
        score: cython.double = value.find_score(words.at[at], words.size[at])
        if score != score:
            if session.db.buffer.valkey:
                raise CommandError(f"member {text(words.get(at))} does not exist")
            raise CommandError("could not decode requested zset member")
        self._area.longitude = longitude_of(score)
        self._area.latitude = latitude_of(score)
        return True

    @cython.cfunc
    def _read_radius(self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        radius: cython.double = score_of(session, words, at, "need numeric radius")
        if radius < 0:
            raise CommandError("radius cannot be negative")
        self._area.unit = unit_of(words, at + 1)
        return self._area.by_radius(radius)

    @cython.cfunc
    def _read_box(self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.bint:
        width: cython.double = score_of(session, words, at, "need numeric width")
        height: cython.double = score_of(session, words, at + 1, "need numeric height")
        if height < 0 or width < 0:
            raise CommandError("height or width cannot be negative")
        self._area.unit = unit_of(words, at + 2)
        return self._area.by_box(width, height)

    @cython.cfunc
    def _read_polygon(self, session: Session, words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Parse the number of vertices and the vertices; return the number of words."""
        count: cython.Py_ssize_t = small_integer(words.get(at), "invalid number of vertices")
        i: cython.Py_ssize_t
        if count < 3 or (words.count - at - 1) // 2 < count:
            raise CommandError("GEOSEARCH BYPOLYGON must have at least 3 vertices")
        points: list[tuple[float, float]] = []
        for i in range(at + 1, at + 1 + 2 * count, 2):
            self._read_position(session, words, i)
            points.append((self._area.longitude, self._area.latitude))
        self._area.by_polygon(points)
        return 1 + 2 * count

    # -- the search ------------------------------------------------------------------------------------

    @cython.cfunc
    def _find(self, value: Zset) -> cython.Py_ssize_t:
        """Find the members, in the order of the reply; return their number."""
        area: SearchArea = self._area
        count: cython.Py_ssize_t
        area.limit = self._count if self._any else 0
        self._collect(value)
        count = area.count
        if not self._sorted and (self._count == 0 or self._any):
            return count
        area.order(self._descending)
        if 0 < self._count < count:
            count = self._count
            if self._has_ties(count):
                self._collect(value)
                self._picked = self._pick(count)
        return count

    @cython.cfunc
    def _collect(self, value: Zset) -> cython.bint:
        """Read the members in the ranges of scores that the area touches."""
        area: SearchArea = self._area
        packed: Listpack | None = value.listpack
        if packed is None:
            assert value.skiplist is not None and value.table is not None
            return area.collect(value.skiplist, value.table)
        cell: cython.int
        cells: cython.int = area.find_cells()
        for cell in range(cells):
            pos: cython.Py_ssize_t = _HEADER
            while pos != packed.used - 1:
                score: cython.double = score_at(packed, packed.skip(pos))
                following: cython.Py_ssize_t = packed.at_next
                if score >= area.high(cell):
                    break
                if score >= area.low(cell) and area.offer(score, pos):
                    return True
                pos = following
        return True

    @cython.cfunc
    def _has_ties(self, count: cython.Py_ssize_t) -> cython.bint:
        """Return whether the order of the first `count` of more members depends on Redis's partial sort."""
        i: cython.Py_ssize_t
        for i in range(count):
            if self._area.distance_at(i) == self._area.distance_at(i + 1):
                return True
        return False

    def _pick(self, count: int) -> list[int]:
        """Return the records of the nearest or the farthest; of equal distances, those that pqsort puts there."""
        # Bytes in the order of the distances, which are positive.
        keys = [_BIG_ENDIAN.pack(self._area.distance_at(at)) for at in range(self._area.count)]
        return partial_order(list(range(self._area.count)), keys, 0, count - 1, self._descending)[:count]

    # -- the result ------------------------------------------------------------------------------------

    @cython.cfunc
    def _record(self, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the record of member i of the result."""
        if self._picked is None:
            return i
        return self._picked[i]

    @cython.cfunc
    def _reply(self, session: Session, count: cython.Py_ssize_t) -> cython.bint:
        """Reply with the members, each in an array with what else is wanted."""
        area: SearchArea = self._area
        out: ReplyWriter = session.out
        wanted: cython.int = self._wanted
        packed: Listpack | None = self._packed
        table: Dict | None = self._table
        i: cython.Py_ssize_t
        one: cython.Py_ssize_t
        score: cython.double
        at: cython.p_const_uchar
        as_score: cython.bint = wanted & _COORDINATES != 0 and session.engine.settings.compat.knows(80)
        extra: cython.int = (wanted & 1) + (wanted >> 1 & 1) + (wanted >> 2)
        out.array(count)
        for i in range(count):
            one = self._record(i)
            if extra:
                out.array(1 + extra)
            if packed is not None:
                write_entry(out, packed, area.entry_at(one))
            else:
                assert table is not None
                at = table.key_span(area.entry_at(one))
                if cython.compiled:
                    out.bulk_span(at, table.span_size)
                else:
                    out.bulk(bytes(at[: table.span_size]))
            if extra == 0:
                continue
            score = area.score_at(one)
            if wanted & _DISTANCE:
                write_distance(out, area.distance_at(one) / area.unit)
            if wanted & _SCORE:
                out.integer(int(score) if -9223372036854775808.0 <= score < 9223372036854775808.0 else _LEAST_INTEGER)
            if wanted & _COORDINATES:
                out.array(2)
                write_coordinate(out, longitude_of(score), as_score)
                write_coordinate(out, latitude_of(score), as_score)
        return True

    @cython.cfunc
    def _store(self, session: Session, words: ArgumentSpans, count: cython.Py_ssize_t) -> cython.bint:
        """Store the members with their scores or their distances; an empty result deletes the key."""
        area: SearchArea = self._area
        packed: Listpack | None = self._packed
        table: Dict | None = self._table
        i: cython.Py_ssize_t
        one: cython.Py_ssize_t
        score: cython.double
        pairs: list[tuple[bytes, float]] = []
        for i in range(count):
            one = self._record(i)
            score = area.score_at(one)
            if self._store_distances:
                # The distance of opposite positions may be NaN; a score may not, and Redis would stop there.
                score = area.distance_at(one)
                score = (score if score == score else _HALF_EARTH) / area.unit
            if packed is not None:
                pairs.append((packed.get_bytes(area.entry_at(one)), score))
            else:
                assert table is not None
                pairs.append((table.entry_key(area.entry_at(one)), score))
        event: bytes = b"geosearchstore" if self._form == _SEARCH_STORE else b"georadiusstore"
        store_result(session, words.get(self._store_at), Zset.from_pairs(pairs, session.engine.settings), event, b"z")
        if count:
            session.dirty += count - 1
        return True


def stored_key(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys of GEORADIUS: the source, and the last target (db.c: georadiusGetKeys)."""
    target = 0
    at = 5
    while at < len(argv) - 1:
        if argv[at].lower() in (b"store", b"storedist"):
            at += 1
            target = at
        at += 1
    return [1, target] if target else [1]


command("georadius", arity=-6, flags="write denyoom movablekeys", since="3.2.0", complexity=_COMPLEXITY,
        syntax=f"key longitude latitude radius {_UNIT} {_OPTIONS}{_STORE}", get_keys=stored_key,
        summary="Reply with the members in a circle around a position, or store them.")(Geosearch)

command("georadius_ro", arity=-6, flags="readonly", since="3.2.10", complexity=_COMPLEXITY,
        syntax=f"key longitude latitude radius {_UNIT} {_OPTIONS}",
        summary="Reply with the members in a circle around a position.")(Geosearch)

command("georadiusbymember", arity=-5, flags="write denyoom movablekeys", since="3.2.0", complexity=_COMPLEXITY,
        syntax=f"key member radius {_UNIT} {_OPTIONS}{_STORE}", get_keys=stored_key,
        summary="Reply with the members in a circle around a member, or store them.")(Geosearch)

command("georadiusbymember_ro", arity=-5, flags="readonly", since="3.2.10", complexity=_COMPLEXITY,
        syntax=f"key member radius {_UNIT} {_OPTIONS}",
        summary="Reply with the members in a circle around a member.")(Geosearch)

command("geosearch", arity=-7, flags="readonly", since="6.2.0", complexity=_COMPLEXITY,
        syntax=f"key {_CENTRE} {_SHAPE} [ASC | DESC] [<COUNT count [ANY]>] [WITHCOORD] [WITHDIST] [WITHHASH]",
        summary="Reply with the members in a circle or a box around a member or a position.")(Geosearch)

command("geosearchstore", arity=-8, flags="write denyoom", keys=(1, 2, 1), since="6.2.0", complexity=_COMPLEXITY,
        syntax=f"destination source {_CENTRE} {_SHAPE} [ASC | DESC] [<COUNT count [ANY]>] [STOREDIST]",
        summary="Store the members in a circle or a box around a member or a position.")(Geosearch)
