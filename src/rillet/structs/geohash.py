"""Geohashes: positions on the earth as 52-bit scores of a sorted set (Redis: geo.c, geohash.c, geohash_helper.c).

Longitude (-180 to 180) and latitude (-85.05112878 to 85.05112878) are each a 26-bit fraction of their range. Their bits
alternate, the longitude's first:

    bit   51 50 49 48        1  0
          lo la lo la  ...  lo la           score = that number

A prefix of 2 * step bits is a cell of the earth, and the positions in a cell are a range of scores:

    step 1      step 2                       +----+----+
    4 cells     16 cells                     | 01 | 11 |  north
                                             +----+----+
    all scores of cell 10 (step 1):          | 00 | 10 |  south
    10 000 ... 0 to 10 111 ... 1             +----+----+
                                             west   east

A search (`SearchArea`) chooses the step whose cells are about as wide as its shape. It reads the cell of its centre and
the eight around it, without those that cannot contain a result, and measures each position. A position is the middle
of its cell at step 26: within 0.3 m.

Distances are great circles by the haversine formula, with Redis's radius and order of operations: the same doubles.
Scores come from users (ZADD), so any double is a position: a 64-bit number, whose upper bits may exceed the ranges.

Costs: O(1) for a position, O(cells + members in the nine cells) for a search.
"""

from __future__ import annotations

from math import pi
from typing import Annotated, Any

from rillet._cython import cython, public, readonly
from rillet.structs.dict import Dict
from rillet.structs.skiplist import Skiplist

if not cython.compiled:
    from math import asin as _asin
    from math import atan2, fabs, sin, sqrt
    from math import cos as _cos

    def asin(x: float) -> float:
        """Return C's asin: NaN for numbers above 1."""
        return _asin(x) if -1 <= x <= 1 else _NAN

    def cos(x: float) -> float:
        """Return C's cos: NaN for infinity."""
        return _cos(x) if -1e308 < x < 1e308 else _NAN

else:
    from cython.cimports.libc.math import asin, atan2, cos, fabs, sin, sqrt
    from cython.cimports.libc.string import memcpy


LONGITUDE = 180.0
LATITUDE = 85.05112878
CIRCLE, BOX, POLYGON = 0, 1, 2
_CIRCLE = cython.declare(cython.int, 0)
_BOX = cython.declare(cython.int, 1)
_POLYGON = cython.declare(cython.int, 2)
_LONGITUDE = cython.declare(cython.double, 180.0)
_LATITUDE = cython.declare(cython.double, 85.05112878)
_RADIAN = cython.declare(cython.double, pi / 180.0)
_EARTH = cython.declare(cython.double, 6372797.560856)
_HALF_EQUATOR = cython.declare(cython.double, 20037726.37)
_MARGIN = cython.declare(cython.double, 1.000001)
_ROUNDING = cython.declare(cython.double, 1e-6)
_NAN = cython.declare(cython.double, float("nan"))
_CELL = cython.declare(cython.double, 2.0**-26)
_RECORD = cython.declare(cython.Py_ssize_t, 24)  # of `SearchArea.found`

_ALL = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_TOP = cython.declare(cython.ulonglong, 0x8000000000000000)
_ODD = cython.declare(cython.ulonglong, 0xAAAAAAAAAAAAAAAA)
_EVEN = cython.declare(cython.ulonglong, 0x5555555555555555)
_PAIRS = cython.declare(cython.ulonglong, 0x3333333333333333)
_FOURS = cython.declare(cython.ulonglong, 0x0F0F0F0F0F0F0F0F)
_EIGHTS = cython.declare(cython.ulonglong, 0x00FF00FF00FF00FF)
_SIXTEENS = cython.declare(cython.ulonglong, 0x0000FFFF0000FFFF)
_LOW = cython.declare(cython.ulonglong, 0x00000000FFFFFFFF)

_ALPHABET = b"0123456789bcdefghjkmnpqrstuvwxyz"


# -- bits -------------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _spread(x: cython.ulonglong) -> cython.ulonglong:
    """Move the bits of a 32-bit number to the even positions."""
    x = (x | x << 16) & _SIXTEENS
    x = (x | x << 8) & _EIGHTS
    x = (x | x << 4) & _FOURS
    x = (x | x << 2) & _PAIRS
    return (x | x << 1) & _EVEN


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _gather(x: cython.ulonglong) -> cython.ulonglong:
    """Return the bits at even positions as a 32-bit number."""
    x = x & _EVEN
    x = (x | x >> 1) & _PAIRS
    x = (x | x >> 2) & _FOURS
    x = (x | x >> 4) & _EIGHTS
    x = (x | x >> 8) & _SIXTEENS
    return (x | x >> 16) & _LOW


@cython.cfunc
@cython.exceptval(check=False)
def score_bits(score: cython.double) -> cython.ulonglong:
    """Return a score as 64 bits, as x86 converts a double: negative numbers wrap, and others out of range are fixed."""
    number: cython.longlong = 0
    if -9223372036854775808.0 <= score < 9223372036854775808.0:
        if cython.compiled:
            number = cython.cast(cython.longlong, score)
            return cython.cast(cython.ulonglong, number)
        return int(score) & _ALL
    if score < 0:
        return _TOP
    return _whole(score) if score < 18446744073709551616.0 else 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _whole(x: cython.double) -> cython.ulonglong:
    """Return a number from 0 to 2^64 without its fraction."""
    if cython.compiled:
        return cython.cast(cython.ulonglong, x)
    return int(x)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _edge(number: cython.ulonglong, step: cython.int, most: cython.double) -> cython.double:
    """Return the coordinate at which the cell of a number begins."""
    cells: cython.double = cython.cast(cython.ulonglong, 1) << step
    return -most + number * 1.0 / cells * (most + most)


@cython.cfunc
@cython.exceptval(check=False)
def lowest_longitude(bits: cython.ulonglong, step: cython.int) -> cython.double:
    """Return the western edge of a cell."""
    return _edge(_gather(bits >> 1), step, _LONGITUDE)


@cython.cfunc
@cython.exceptval(check=False)
def highest_longitude(bits: cython.ulonglong, step: cython.int) -> cython.double:
    """Return the eastern edge of a cell; the number of the next cell has 32 bits."""
    return _edge(_gather(bits >> 1) + 1 & _LOW, step, _LONGITUDE)


@cython.cfunc
@cython.exceptval(check=False)
def lowest_latitude(bits: cython.ulonglong, step: cython.int) -> cython.double:
    """Return the southern edge of a cell."""
    return _edge(_gather(bits), step, _LATITUDE)


@cython.cfunc
@cython.exceptval(check=False)
def highest_latitude(bits: cython.ulonglong, step: cython.int) -> cython.double:
    """Return the northern edge of a cell; the number of the next cell has 32 bits."""
    return _edge(_gather(bits) + 1 & _LOW, step, _LATITUDE)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _clamped(x: cython.double, most: cython.double) -> cython.double:
    return most if x > most else -most if x < -most else x


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _middle(number: cython.ulonglong, most: cython.double) -> cython.double:
    """Return the coordinate in the middle of a cell of step 26; a product with 2^-26 is exact, as a quotient is."""
    low: cython.double = -most + number * _CELL * (most + most)
    high: cython.double = -most + (number + 1 & _LOW) * _CELL * (most + most)
    return _clamped((low + high) / 2, most)


@cython.ccall
@cython.exceptval(check=False)
def longitude_of(score: cython.double) -> cython.double:
    """Return the longitude of a score: the middle of its cell."""
    return _middle(_gather(score_bits(score) >> 1), _LONGITUDE)


@cython.ccall
@cython.exceptval(check=False)
def latitude_of(score: cython.double) -> cython.double:
    """Return the latitude of a score: the middle of its cell."""
    return _middle(_gather(score_bits(score)), _LATITUDE)


@cython.ccall
@cython.exceptval(check=False)
def encode(
    longitude: cython.double, latitude: cython.double, step: cython.int = 26, most: cython.double = LATITUDE
) -> cython.ulonglong:
    """Return the number of the cell of a position, which is in range; `most` is the largest latitude of all cells.

    At the eastern and northern edge of the world it has one bit more.
    """
    cells: cython.double = cython.cast(cython.ulonglong, 1) << step
    x: cython.ulonglong = _whole((longitude + _LONGITUDE) / (_LONGITUDE + _LONGITUDE) * cells)
    y: cython.ulonglong = _whole((latitude + most) / (most + most) * cells)
    return _spread(y) | _spread(x) << 1


@cython.ccall
def geohash_text(score: cython.double) -> bytes:
    """Return the 11 letters of the standard geohash, whose latitudes end at the poles; the last letter is 0 always."""
    bits: cython.ulonglong = encode(longitude_of(score), latitude_of(score), 26, 90.0)
    letters: bytearray = bytearray(b"0" * 11)
    i: cython.int = 0
    while i < 10:
        letters[i] = _ALPHABET[bits >> 47 - 5 * i & 0x1F]
        i += 1
    return bytes(letters)


# -- distances --------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _latitude_distance(lat1: cython.double, lat2: cython.double) -> cython.double:
    return _EARTH * fabs(lat2 * _RADIAN - lat1 * _RADIAN)


@cython.ccall
@cython.exceptval(check=False)
def distance(
    lon1: cython.double, lat1: cython.double, lon2: cython.double, lat2: cython.double, near: cython.double = 0.0
) -> cython.double:
    """Return the distance of two positions in metres (geohashGetDistance), NaN for some opposite ones.

    Longitudes whose half difference has a sine of at most `near` are equal: 0 in Redis, 1e-15 in Valkey.
    """
    v: cython.double = sin((lon2 * _RADIAN - lon1 * _RADIAN) / 2)
    if fabs(v) <= near:
        return _latitude_distance(lat1, lat2)
    u: cython.double = sin((lat2 * _RADIAN - lat1 * _RADIAN) / 2)
    a: cython.double = u * u + cos(lat1 * _RADIAN) * cos(lat2 * _RADIAN) * v * v
    return 2.0 * _EARTH * asin(sqrt(a))


# -- searches ---------------------------------------------------------------------------------------


@cython.cfunc
@cython.exceptval(check=False)
def _steps(metres: cython.double, latitude: cython.double) -> cython.int:
    """Return the step whose cells are about as wide as a distance (geohashEstimateStepsByRadius)."""
    if metres == 0.0:
        return 26
    step: cython.int = -1
    while metres < _HALF_EQUATOR:
        metres *= 2
        step += 1
    if latitude > 66 or latitude < -66:
        step -= 1
        if latitude > 80 or latitude < -80:
            step -= 1
    return 1 if step < 1 else 26 if step > 26 else step


@cython.cfunc
@cython.exceptval(check=False)
def _moved(bits: cython.ulonglong, step: cython.int, east: cython.int, north: cython.int) -> cython.ulonglong:
    """Return the cell beside another one; the world is a ring in both directions (geohash_move_x, geohash_move_y)."""
    longitudes: cython.ulonglong = _ODD >> (64 - 2 * step)
    latitudes: cython.ulonglong = _EVEN >> (64 - 2 * step)
    x: cython.ulonglong = bits & _ODD
    y: cython.ulonglong = bits & _EVEN
    if east > 0:
        x = x + latitudes + 1 & longitudes
    elif east < 0:
        x = (x | latitudes) - (latitudes + 1) & longitudes
    if north > 0:
        y = y + longitudes + 1 & latitudes
    elif north < 0:
        y = (y | longitudes) - (longitudes + 1) & latitudes
    return x | y


# The order in which Redis reads the cells: how far to the east and to the north they are, plus 1.
_EAST = cython.declare(bytes, bytes((1, 1, 1, 2, 0, 2, 0, 2, 0)))
_NORTH = cython.declare(bytes, bytes((1, 2, 0, 1, 1, 2, 2, 0, 0)))
_CELLS = cython.declare(cython.int, 9)


@cython.final
@cython.cclass
class SearchArea:
    """An area to search: a circle, a box or a polygon (geohash.h: GeoShape).

    unit: metres of one unit of the radius, width and height. near: see `distance`. A circle and a box need a centre; a
    polygon has one when `find_cells` was called. found: the `count` members that `offer` accepted, up to `limit` (0:
    all), as records of a distance in metres, a score (two doubles) and the number of the member's entry.
    """

    __slots__ = (
        "_distance", "_east", "_highs", "_lat", "_lon", "_lows", "_north", "_south", "_west", "count", "found",
        "height", "kind", "latitude", "limit", "longitude", "near", "points", "unit", "width",
    )  # fmt: skip
    kind: readonly[cython.int]
    longitude: public[cython.double]
    latitude: public[cython.double]
    unit: public[cython.double]
    near: public[cython.double]
    width: readonly[cython.double]
    height: readonly[cython.double]
    points: readonly[list[Any]]
    found: bytearray
    count: readonly[cython.Py_ssize_t]
    limit: public[cython.Py_ssize_t]
    _lows: Annotated[Any, cython.double[9]]
    _highs: Annotated[Any, cython.double[9]]
    _west: cython.double
    _east: cython.double
    _south: cython.double
    _north: cython.double
    _lon: cython.double
    _lat: cython.double
    _distance: cython.double

    def __init__(self, near: float = 0.0) -> None:
        self.kind = _CIRCLE
        self.longitude = self.latitude = 0.0
        self.unit = 1.0
        self.near = near
        self.width = self.height = 0.0  # of a circle: its radius
        self.points = []
        self._west = self._east = self._south = self._north = 0.0
        self._lon = self._lat = self._distance = 0.0
        self.found = bytearray()
        self.count = self.limit = 0
        if not cython.compiled:
            self._lows, self._highs = [0.0] * 9, [0.0] * 9

    @cython.ccall
    def by_radius(self, radius: cython.double) -> cython.bint:
        """Make it a circle."""
        self.kind = _CIRCLE
        self.width = self.height = radius
        return True

    @cython.ccall
    def by_box(self, width: cython.double, height: cython.double) -> cython.bint:
        """Make it a box, whose sides follow longitudes and latitudes."""
        self.kind = _BOX
        self.width = width
        self.height = height
        return True

    @cython.ccall
    def by_polygon(self, points: list[Any]) -> cython.bint:
        """Make it a polygon of (longitude, latitude)."""
        self.kind = _POLYGON
        self.points = points
        return True

    # -- which cells -----------------------------------------------------------------------------------

    @cython.cfunc
    def _bound(self) -> cython.bint:
        """Compute the longitudes and latitudes that bound the shape (geohashBoundingBox)."""
        if self.kind == _POLYGON:
            return self._bound_polygon()
        half: cython.double = 1.0 if self.kind == _CIRCLE else 2.0
        height: cython.double = self.unit * (self.height / half)
        width: cython.double = self.unit * (self.width / half)
        lat: cython.double = height / _EARTH / _RADIAN
        # The side that is nearer to a pole spans more degrees. Redis takes the other one north of the equator.
        side: cython.double = self.latitude - lat if self.latitude < 0 else self.latitude + lat
        lon: cython.double = width / _EARTH / cos(side * _RADIAN) / _RADIAN
        self._west = self.longitude - lon
        self._east = self.longitude + lon
        self._south = self.latitude - lat
        self._north = self.latitude + lat
        return True

    @cython.cfunc
    def _bound_polygon(self) -> cython.bint:
        """Compute the bounds, and the centre: the direction of the sum of the vertices as vectors."""
        x: cython.double = 0.0
        y: cython.double = 0.0
        z: cython.double = 0.0
        lon: cython.double
        lat: cython.double
        self._west, self._east, self._south, self._north = _LONGITUDE, -_LONGITUDE, _LATITUDE, -_LATITUDE
        for lon, lat in self.points:
            self._west = min(self._west, lon)
            self._east = max(self._east, lon)
            self._south = min(self._south, lat)
            self._north = max(self._north, lat)
            x += cos(lat * _RADIAN) * cos(lon * _RADIAN)
            y += cos(lat * _RADIAN) * sin(lon * _RADIAN)
            z += sin(lat * _RADIAN)
        self.longitude = atan2(y, x) / _RADIAN
        self.latitude = atan2(z, sqrt(x * x + y * y)) / _RADIAN
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _reach(self) -> cython.double:
        """Return the distance of the farthest point of the shape from its centre, in metres."""
        if self.kind == _CIRCLE:
            return self.width * self.unit
        if self.kind == _BOX:
            return sqrt(self.width / 2 * (self.width / 2) + self.height / 2 * (self.height / 2)) * self.unit
        far: cython.double = distance(self.longitude, self.latitude, self._west, self._north, self.near)
        far = max(far, distance(self.longitude, self.latitude, self._east, self._north, self.near))
        far = max(far, distance(self.longitude, self.latitude, self._west, self._south, self.near))
        return max(far, distance(self.longitude, self.latitude, self._east, self._south, self.near))

    @cython.cfunc
    def _covers(self, bits: cython.ulonglong, step: cython.int) -> cython.bint:
        """Return whether a cell and its neighbours reach as far as the shape in each direction."""
        if highest_latitude(_moved(bits, step, 0, 1), step) < self._north:
            return False
        if lowest_latitude(_moved(bits, step, 0, -1), step) > self._south:
            return False
        if highest_longitude(_moved(bits, step, 1, 0), step) < self._east:
            return False
        return not lowest_longitude(_moved(bits, step, -1, 0), step) > self._west

    @cython.cfunc
    @cython.exceptval(check=False)
    def low(self, cell: cython.int) -> cython.double:
        """Return the lowest score of a range that `find_cells` found."""
        return self._lows[cell]  # type: ignore[no-any-return]

    @cython.cfunc
    @cython.exceptval(check=False)
    def high(self, cell: cython.int) -> cython.double:
        """Return the score after a range."""
        return self._highs[cell]  # type: ignore[no-any-return]

    @cython.ccall
    def find_cells(self) -> cython.int:
        """Begin a search: find the ranges of scores to read, in order (geohashCalculateAreasByShapeWGS84).

        Return their number.
        """
        self.count = 0
        self._bound()
        step: cython.int = _steps(self._reach(), self.latitude)
        latitude: cython.double = _clamped(self.latitude, _LATITUDE)  # a polygon around a pole has its centre there
        bits: cython.ulonglong = encode(self.longitude, latitude, step)
        if step > 1 and not self._covers(bits, step):
            step -= 1
            bits = encode(self.longitude, latitude, step)
        no_south: cython.bint = step >= 2 and lowest_latitude(bits, step) < self._south
        no_north: cython.bint = step >= 2 and highest_latitude(bits, step) > self._north
        no_west: cython.bint = step >= 2 and lowest_longitude(bits, step) < self._west
        no_east: cython.bint = step >= 2 and highest_longitude(bits, step) > self._east
        cell: cython.ulonglong
        last: cython.ulonglong = 0
        east: cython.int
        north: cython.int
        i: cython.int
        found: cython.int = 0
        for i in range(_CELLS):
            east = _EAST[i] - 1
            north = _NORTH[i] - 1
            if not (
                (north < 0 and no_south) or (north > 0 and no_north) or (east < 0 and no_west) or (east > 0 and no_east)
            ):
                cell = _moved(bits, step, east, north)
                # Few cells make a ring: the same one follows itself. Redis does not compare the second with the first.
                if found < 2 or cell != last:
                    self._lows[found] = cell << 52 - 2 * step
                    self._highs[found] = cell + 1 << 52 - 2 * step
                    found += 1
                    last = cell
        return found

    # -- which positions -------------------------------------------------------------------------------

    @cython.ccall
    def contains(self, score: cython.double) -> cython.bint:
        """Return whether a score is in the shape; remember its position and its distance (geoWithinShape)."""
        self._lat = latitude_of(score)
        if self.kind == _CIRCLE:
            # The distance is not smaller than that of the latitudes, which is cheap; the margin is for rounding.
            if _latitude_distance(self._lat, self.latitude) > self.width * self.unit * _MARGIN + _ROUNDING:
                return False
            self._lon = longitude_of(score)
            self._distance = distance(self.longitude, self.latitude, self._lon, self._lat, self.near)
            return not self._distance > self.width * self.unit
        self._lon = longitude_of(score)
        if self.kind == _BOX:
            if _latitude_distance(self._lat, self.latitude) > self.height * self.unit / 2:
                return False
            if distance(self._lon, self._lat, self.longitude, self._lat, self.near) > self.width * self.unit / 2:
                return False
        elif not self._in_polygon():
            return False
        self._distance = distance(self.longitude, self.latitude, self._lon, self._lat, self.near)
        return True

    @cython.cfunc
    def _in_polygon(self) -> cython.bint:
        """Return whether a ray from the position to the east crosses an odd number of edges."""
        inside: cython.bint = False
        lon1: cython.double
        lat1: cython.double
        lon2: cython.double
        lat2: cython.double
        lon2, lat2 = self.points[len(self.points) - 1]
        for lon1, lat1 in self.points:
            if (lat1 > self._lat) != (lat2 > self._lat) and self._lon < (
                (lon2 - lon1) * (self._lat - lat1) / (lat2 - lat1) + lon1
            ):
                inside = not inside
            lon2 = lon1
            lat2 = lat1
        return inside

    @cython.cfunc
    def offer(self, score: cython.double, entry: cython.Py_ssize_t) -> cython.bint:
        """Append a record to `found` if the score is in the shape; return whether no more are wanted."""
        if not self.contains(score):
            return False
        if _RECORD * (self.count + 1) > len(self.found):
            self.found.extend(bytes(len(self.found) + 64 * _RECORD))
        if cython.compiled:
            at: cython.p_uchar = self.found
            at += _RECORD * self.count
            memcpy(at, cython.address(self._distance), 8)
            memcpy(at + 8, cython.address(score), 8)
            memcpy(at + 16, cython.address(entry), 8)
        else:
            doubles, numbers = memoryview(self.found).cast("d"), memoryview(self.found).cast("q")
            at = 3 * self.count
            doubles[at], doubles[at + 1], numbers[at + 2] = self._distance, score, entry
        self.count += 1
        return self.count == self.limit

    @cython.ccall
    def collect(self, skiplist: Skiplist, table: Dict) -> cython.bint:
        """Offer the members of a skiplist. O(log n + members in the ranges)"""
        cell: cython.int
        cells: cython.int = self.find_cells()
        for cell in range(cells):
            start: cython.Py_ssize_t = skiplist.below(table, self.low(cell), False)
            if start == skiplist.length:
                continue
            skiplist.at(start)
            x: cython.Py_ssize_t = skiplist.at_node
            i: cython.Py_ssize_t = skiplist.at_index
            length: cython.Py_ssize_t = skiplist.count_of(x)
            left: cython.Py_ssize_t = skiplist.length - start
            high: cython.double = self.high(cell)
            while left:
                score: cython.double = skiplist.score_of(x, i)
                if score >= high:
                    break
                if self.offer(score, skiplist.entry_of(x, i)):
                    return True
                left -= 1
                i += 1
                if i == length and left:
                    x = skiplist.next_of(x)
                    length = skiplist.count_of(x)
                    i = 0
        return True

    @cython.cfunc
    def order(self, descending: cython.bint) -> cython.bint:
        """Sort the records of `found` by distance; equal ones keep their order. O(n log n)"""
        count: cython.Py_ssize_t = self.count
        if count < 2:
            return True
        spare: bytearray = bytearray(_RECORD * count)
        kept: bytearray = self.found
        swap: bytearray
        width: cython.Py_ssize_t = 1
        i: cython.Py_ssize_t
        while width < count:
            i = 0
            while i < count:
                _merge_records(kept, spare, i, min(i + width, count), min(i + 2 * width, count), descending)
                i += 2 * width
            swap = kept
            kept = spare
            spare = swap
            width *= 2
        self.found = kept
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def distance_at(self, index: cython.Py_ssize_t) -> cython.double:
        """Return the distance in a record."""
        return _double_at(self.found, 3 * index)

    @cython.cfunc
    @cython.exceptval(check=False)
    def score_at(self, index: cython.Py_ssize_t) -> cython.double:
        """Return the score in a record."""
        return _double_at(self.found, 3 * index + 1)

    @cython.ccall
    @cython.exceptval(check=False)
    def entry_at(self, index: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the number of the entry in a record."""
        if not cython.compiled:
            return memoryview(self.found).cast("q")[3 * index + 2]
        entry: cython.Py_ssize_t = 0
        at: cython.p_uchar = self.found
        memcpy(cython.address(entry), at + _RECORD * index + 16, 8)
        return entry


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _double_at(records: bytearray, index: cython.Py_ssize_t) -> cython.double:
    """Return a double of an array."""
    if not cython.compiled:
        return memoryview(records).cast("d")[index]
    value: cython.double = 0.0
    at: cython.p_uchar = records
    memcpy(cython.address(value), at + 8 * index, 8)
    return value


@cython.cfunc
@cython.exceptval(check=False)
def _merge_records(
    source: bytearray, target: bytearray, start: cython.Py_ssize_t, middle: cython.Py_ssize_t, end: cython.Py_ssize_t,
    descending: cython.bint,
) -> cython.void:  # fmt: skip
    """Merge two sorted runs of records of the source, [start, middle) and [middle, end), into the target."""
    left: cython.Py_ssize_t = start
    right: cython.Py_ssize_t = middle
    at: cython.Py_ssize_t
    one: cython.Py_ssize_t
    from_left: cython.bint
    first: cython.double
    second: cython.double
    to: cython.p_uchar = target
    fr: cython.p_uchar = source
    for at in range(start, end):
        from_left = left < middle
        if from_left and right < end:
            first = _double_at(source, 3 * left)
            second = _double_at(source, 3 * right)
            from_left = first >= second if descending else not first > second  # NaN, as Redis compares it
        one = left if from_left else right
        if from_left:
            left += 1
        else:
            right += 1
        if cython.compiled:
            memcpy(to + _RECORD * at, fr + _RECORD * one, _RECORD)
        else:
            target[_RECORD * at : _RECORD * (at + 1)] = source[_RECORD * one : _RECORD * (one + 1)]
