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
from operator import itemgetter
from typing import Any

from rillet.commands.arguments import integer, small_integer, syntax_error, text
from rillet.commands.geo import command
from rillet.commands.geo.fast_path import GeosearchFastPath
from rillet.commands.geo.members import as_scores, near, position, unit
from rillet.commands.geo.replies import write_coordinate, write_distance
from rillet.commands.lookup import read_value
from rillet.commands.set.operations import store_result
from rillet.commands.zset.members import score_argument
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.geohash import SearchArea, latitude_of, longitude_of
from rillet.structs.sorting import partial_order
from rillet.types.zset import ScoreRange, Zset

Found = tuple[float, bytes, float, float, float]
"""Distance in metres, member, score, longitude, latitude."""

_AROUND_POSITION, _AROUND_MEMBER, _SEARCH, _SEARCH_STORE = range(4)
_SEARCHES = (_SEARCH, _SEARCH_STORE)
_WITH = {b"withdist": "distance", b"withhash": "score", b"withcoord": "coordinates"}
_HALF_EARTH = 20_020_734.0
_DISTANCE = itemgetter(0)
_BIG_ENDIAN = struct.Struct(">d")
_COMPLEXITY = (
    "O(N+log(M)) where N is the number of elements in the grid-aligned bounding box area around the shape provided as "
    "the filter and M is the number of items inside the shape"
)
_OPTIONS = "[WITHCOORD] [WITHDIST] [WITHHASH] [<COUNT count [ANY]@6.2.0>] [ASC | DESC]"
_UNIT = "<M | KM | FT | MI>"


class _Request:
    """The arguments of a search."""

    __slots__ = ("any", "count", "form", "order", "shape", "store", "store_distances", "value", "wanted")

    def __init__(self, session: Session, argv: list[bytes], form: int, may_store: bool) -> None:
        self.form = form
        self.count = 0
        self.order = b""
        self.any = self.store_distances = False
        self.store: bytes | None = argv[1] if form == _SEARCH_STORE else None
        self.wanted: set[str] = set()
        self.shape = SearchArea(near(session))
        self.value = read_value(session, argv[2 if form == _SEARCH_STORE else 1], Zset)
        at = 3 if form == _SEARCH_STORE else 2
        if form == _AROUND_POSITION:
            self._centre(*position(session, argv[2:4]))
            self._radius(session, argv[4:6])
            at = 6
        elif form == _AROUND_MEMBER:
            if self.value is not None:
                self._member(session, argv[2])
                self._radius(session, argv[3:5])
            at = 5
        self._parse(session, argv, at, may_store)

    def _parse(self, session: Session, argv: list[bytes], at: int, may_store: bool) -> None:
        search, valkey = self.form in _SEARCHES, session.engine.settings.compat.valkey
        centre = shape = b""
        while at < len(argv):
            word = argv[at].lower()
            rest = argv[at + 1 :]
            at += 1
            polygon = shape == b"bypolygon"
            if word in _WITH:
                self.wanted.add(_WITH[word])
            elif word == b"any":
                self.any = True
            elif word in (b"asc", b"desc"):
                self.order = word
            elif word == b"count" and rest:
                self.count = integer(rest[0])
                if self.count <= 0:
                    raise CommandError("COUNT must be > 0")
                at += 1
            elif word in (b"store", b"storedist") and rest and may_store and not search:
                self.store, self.store_distances = rest[0], word == b"storedist"
                at += 1
            elif word == b"storedist" and self.form == _SEARCH_STORE:
                self.store_distances = True
            elif word == b"frommember" and rest and search and centre in (b"", word) and not polygon:
                if self.value is not None:
                    self._member(session, rest[0])
                centre = word
                at += 1
            elif word == b"fromlonlat" and len(rest) > 1 and search and centre in (b"", word) and not polygon:
                self._centre(*position(session, rest[:2]))
                centre = word
                at += 2
            elif word == b"byradius" and len(rest) > 1 and search and shape in (b"", word):
                self._radius(session, rest[:2])
                shape = word
                at += 2
            elif word == b"bybox" and len(rest) > 2 and search and shape in (b"", word):
                self._box(session, rest[:3])
                shape = word
                at += 3
            elif (word == b"bypolygon" and valkey and len(rest) > 1 and search and shape in (b"", word)
                  and not centre):  # fmt: skip
                at += self._polygon(session, rest)
                shape = word
            else:
                raise syntax_error()
        self._check(argv[0], search, centre, shape, valkey)

    def _check(self, name: bytes, search: bool, centre: bytes, shape: bytes, valkey: bool) -> None:
        """Raise an error for options that contradict each other or are missing."""
        if self.store is not None and self.wanted:
            what = "GEOSEARCHSTORE" if self.form == _SEARCH_STORE else "STORE option in GEORADIUS"
            raise CommandError(f"{what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")
        if search and not centre and shape != b"bypolygon":
            raise CommandError(f"exactly one of FROMMEMBER or FROMLONLAT can be specified for {text(name)}")
        if search and not shape:
            shapes = "BYRADIUS, BYBOX and BYPOLYGON" if valkey else "BYRADIUS and BYBOX"
            raise CommandError(f"exactly one of {shapes} can be specified for {text(name)}")
        if self.any and not self.count:
            raise CommandError("the ANY argument requires COUNT argument")

    # -- centre and shape ------------------------------------------------------------------------------

    def _centre(self, longitude: float, latitude: float) -> None:
        self.shape.longitude, self.shape.latitude = longitude, latitude

    def _member(self, session: Session, member: bytes) -> None:
        assert self.value is not None
        score = self.value.score(member)
        if score is None:
            if session.engine.settings.compat.valkey:
                raise CommandError(f"member {text(member)} does not exist")
            raise CommandError("could not decode requested zset member")
        self._centre(longitude_of(score), latitude_of(score))

    def _radius(self, session: Session, words: list[bytes]) -> None:
        radius = score_argument(session, words[0], "need numeric radius")
        if radius < 0:
            raise CommandError("radius cannot be negative")
        self.shape.unit = unit(words[1])
        self.shape.by_radius(radius)

    def _box(self, session: Session, words: list[bytes]) -> None:
        width = score_argument(session, words[0], "need numeric width")
        height = score_argument(session, words[1], "need numeric height")
        if height < 0 or width < 0:
            raise CommandError("height or width cannot be negative")
        self.shape.unit = unit(words[2])
        self.shape.by_box(width, height)

    def _polygon(self, session: Session, words: list[bytes]) -> int:
        """Parse the vertices; return the number of words."""
        count = small_integer(words[0], "invalid number of vertices")
        if count < 3 or (len(words) - 1) // 2 < count:
            raise CommandError("GEOSEARCH BYPOLYGON must have at least 3 vertices")
        self.shape.by_polygon([position(session, words[at : at + 2]) for at in range(1, 2 * count, 2)])
        return 1 + 2 * count

    # -- the search ------------------------------------------------------------------------------------

    def run(self) -> list[Found]:
        """Return the members, in the order of the reply."""
        found: list[Any] = []
        assert self.value is not None
        limit = self.count if self.any else 0
        for low, high in self.shape.ranges():
            start, size = self.value.window_of_scores(ScoreRange(float(low), float(high), False, True))
            if self.value.skiplist is None:
                self.shape.take(self.value.slice(start, size), found, limit)
            elif size > 0:
                assert self.value.table is not None
                self.shape.take_window(self.value.skiplist, self.value.table, start, size, found, limit)
            if limit and len(found) >= limit:
                break
        order = self.order or (b"asc" if self.count and not self.any else b"")
        if order and self.count and len(found) > self.count:
            return _first(found, self.count, order == b"desc")
        if order:
            found.sort(key=_DISTANCE, reverse=order == b"desc")
        return found[: self.count] if self.count else found


def _first(found: list[Found], count: int, descending: bool) -> list[Found]:
    """Return the nearest or the farthest; of equal distances, those that pqsort puts there. `found` has more."""
    ordered = sorted(found, key=_DISTANCE, reverse=descending)
    if all(ordered[at][0] != ordered[at + 1][0] for at in range(count)):
        return ordered[:count]
    keys = [_BIG_ENDIAN.pack(one[0]) for one in found]  # bytes in the order of the distances, which are positive
    return partial_order(found, keys, 0, count - 1, descending)[:count]


def _reply(session: Session, request: _Request, found: list[Found]) -> None:
    """Reply with the members, each in an array with what else is wanted."""
    out, wanted, metres = session.out, request.wanted, request.shape.unit
    as_score = as_scores(session)
    out.array(len(found))
    for distance, member, score, longitude, latitude in found:
        if wanted:
            out.array(1 + len(wanted))
        out.bulk(member)
        if "distance" in wanted:
            write_distance(out, distance / metres)
        if "score" in wanted:
            out.integer(int(score) if -(2.0**63) <= score < 2.0**63 else -(2**63))
        if "coordinates" in wanted:
            out.array(2)
            write_coordinate(out, longitude, as_score)
            write_coordinate(out, latitude, as_score)


def _store(session: Session, request: _Request, found: list[Found]) -> None:
    """Store the members with their scores or their distances; an empty result deletes the key."""
    assert request.store is not None
    metres = request.shape.unit
    if request.store_distances:
        # The distance of opposite positions may be NaN; a score may not, and Redis would stop there.
        pairs = [(member, (distance if distance == distance else _HALF_EARTH) / metres)
                 for distance, member, *_ in found]  # fmt: skip
    else:
        pairs = [(member, score) for _, member, score, *_ in found]
    event = b"geosearchstore" if request.form == _SEARCH_STORE else b"georadiusstore"
    store_result(session, request.store, Zset.of(pairs, session.engine.settings), event, b"z")
    if found:
        session.dirty += len(found) - 1


def _run(session: Session, argv: list[bytes], form: int, may_store: bool = True) -> None:
    request = _Request(session, argv, form, may_store)
    found = [] if request.value is None else request.run()
    if request.store is not None:
        _store(session, request, found)
    else:
        _reply(session, request, found)


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


_STORE = " [<STORE key | STOREDIST key>]"
_CENTRE = "<FROMMEMBER member | FROMLONLAT longitude latitude>"
_SHAPE = f"<BYRADIUS radius {_UNIT} | BYBOX width height {_UNIT}>"


@command("georadius", arity=-6, flags="write denyoom movablekeys", since="3.2.0", complexity=_COMPLEXITY,
         syntax=f"key longitude latitude radius {_UNIT} {_OPTIONS}{_STORE}", get_keys=stored_key)
def georadius(session: Session, argv: list[bytes]) -> None:
    """Reply with the members in a circle around a position, or store them."""
    _run(session, argv, _AROUND_POSITION)


@command("georadius_ro", arity=-6, flags="readonly", since="3.2.10", complexity=_COMPLEXITY,
         syntax=f"key longitude latitude radius {_UNIT} {_OPTIONS}")
def georadius_ro(session: Session, argv: list[bytes]) -> None:
    """Reply with the members in a circle around a position."""
    _run(session, argv, _AROUND_POSITION, False)


@command("georadiusbymember", arity=-5, flags="write denyoom movablekeys", since="3.2.0", complexity=_COMPLEXITY,
         syntax=f"key member radius {_UNIT} {_OPTIONS}{_STORE}", get_keys=stored_key)
def georadiusbymember(session: Session, argv: list[bytes]) -> None:
    """Reply with the members in a circle around a member, or store them."""
    _run(session, argv, _AROUND_MEMBER)


@command("georadiusbymember_ro", arity=-5, flags="readonly", since="3.2.10", complexity=_COMPLEXITY,
         syntax=f"key member radius {_UNIT} {_OPTIONS}")
def georadiusbymember_ro(session: Session, argv: list[bytes]) -> None:
    """Reply with the members in a circle around a member."""
    _run(session, argv, _AROUND_MEMBER, False)


@command("geosearch", arity=-7, flags="readonly", since="6.2.0", complexity=_COMPLEXITY,
         syntax=f"key {_CENTRE} {_SHAPE} [ASC | DESC] [<COUNT count [ANY]>] [WITHCOORD] [WITHDIST] [WITHHASH]",
         shortcut=GeosearchFastPath)
def geosearch(session: Session, argv: list[bytes]) -> None:
    """Reply with the members in a circle or a box around a member or a position."""
    _run(session, argv, _SEARCH)


@command("geosearchstore", arity=-8, flags="write denyoom", keys=(1, 2, 1), since="6.2.0", complexity=_COMPLEXITY,
         syntax=f"destination source {_CENTRE} {_SHAPE} [ASC | DESC] [<COUNT count [ANY]>] [STOREDIST]")
def geosearchstore(session: Session, argv: list[bytes]) -> None:
    """Store the members in a circle or a box around a member or a position."""
    _run(session, argv, _SEARCH_STORE)
