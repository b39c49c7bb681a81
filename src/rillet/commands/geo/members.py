"""GEOADD, GEOPOS, GEOHASH and GEODIST (Redis: geo.c; structs/geohash.py has the scores).

A position is the score of a member, so every command on sorted sets applies. GEOADD is executed and logged as the ZADD
that it is; the other commands are reads:

    GEOADD k 13.36 38.11 m     ->   zadd k 3479099956230698 m
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import syntax_error
from rillet.commands.geo import command
from rillet.commands.geo.replies import write_coordinate, write_distance
from rillet.commands.lookup import read_value
from rillet.commands.zset.members import add_members, score_of
from rillet.commands.zset.values import zset_at
from rillet.errors import CommandError
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.geohash import LATITUDE, LONGITUDE, distance, encode, geohash_text, latitude_of, longitude_of
from rillet.structs.integer_text import decimal
from rillet.types.zset import Zset

_UNITS = {b"m": 1.0, b"km": 1000.0, b"ft": 0.3048, b"mi": 1609.34}  # in metres
_VALKEY_NEAR = cython.declare(cython.double, 1e-15)  # longitudes that differ by a few nanometres are equal
_LONGITUDE = cython.declare(cython.double, LONGITUDE)
_LATITUDE = cython.declare(cython.double, LATITUDE)


@cython.cfunc
@cython.exceptval(check=False)
def near(db: Database) -> cython.double:
    """Return the argument `near` of `geohash.distance` for the server to imitate."""
    return _VALKEY_NEAR if db.buffer.valkey else 0.0


@cython.cfunc
def check_position(longitude: cython.double, latitude: cython.double) -> cython.bint:
    """Raise an error for a position outside of the world (extractLongLatOrReply)."""
    if not (-_LONGITUDE <= longitude <= _LONGITUDE and -_LATITUDE <= latitude <= _LATITUDE):
        raise CommandError(f"invalid longitude,latitude pair {longitude:f},{latitude:f}")
    return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def unit_of(words: ArgumentSpans, at: cython.Py_ssize_t) -> cython.double:
    """Return the metres of the unit in an argument (extractUnitOrReply)."""
    if words.is_option(at, b"m"):
        return 1.0
    if words.is_option(at, b"km"):
        return 1000.0
    found: object = _UNITS.get(words.get(at).lower().split(b"\0", 1)[0])
    if found is None:
        raise CommandError("unsupported unit provided. please use M, KM, FT, MI")
    return found  # type: ignore[return-value]


@cython.final
@cython.cclass
class Geoadd(Implementation):
    """GEOADD (geoaddCommand). _call: the ZADD."""

    __slots__ = ("_call",)
    _call: ArgumentSpans

    def __init__(self) -> None:
        self._call = ArgumentSpans()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Add members with their positions, or change their positions."""
        at: cython.Py_ssize_t = 2
        i: cython.Py_ssize_t
        nx: cython.bint = False
        xx: cython.bint = False
        longitude: cython.double
        latitude: cython.double
        argv: list[bytes] = [b"ZADD" if session.db.buffer.valkey else b"zadd", words.get(1)]
        while not words.is_digit(at):
            if words.is_option(at, b"nx"):
                nx = True
            elif words.is_option(at, b"xx"):
                xx = True
            elif not words.is_option(at, b"ch"):
                break
            argv.append(words.get(at))
            at += 1
        if (words.count - at) % 3 or (nx and xx):
            raise syntax_error()
        for i in range(at, words.count, 3):
            longitude = score_of(session, words, i)
            latitude = score_of(session, words, i + 1)
            check_position(longitude, latitude)
            argv.append(decimal(encode(longitude, latitude)))
            argv.append(words.get(i + 2))
        self._call.point_to(argv, 0, len(argv))
        add_members(session, self._call, 0)
        return session.dirty == 0 or not session.logged or session.propagate(argv)


command("geoadd", arity=-5, flags="write denyoom", since="3.2.0",
        syntax="key [NX | XX]@6.2.0 [CH]@6.2.0 longitude latitude member [longitude latitude member ...]",
        summary="Add members with their positions, or change their positions.",
        complexity="O(log(N)) for each item added, where N is the number of elements in the sorted set.")(Geoadd)


@cython.final
@cython.cclass
class Geopos(Implementation):
    """GEOPOS."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the longitude and latitude of each member."""
        db: Database = session.db
        out: ReplyWriter = session.out
        i: cython.Py_ssize_t
        score: cython.double
        value: Zset | None = zset_at(db, db.locate_read(words))
        as_score: cython.bint = session.engine.settings.compat.knows(80)
        out.array(words.count - 2)
        for i in range(2, words.count):
            if value is not None:
                score = value.find_score(words.at[i], words.size[i])
                if score == score:
                    out.array(2)
                    write_coordinate(out, longitude_of(score), as_score)
                    write_coordinate(out, latitude_of(score), as_score)
                    continue
            out.null_array()
        return True


command("geopos", arity=-2, flags="readonly", since="3.2.0", syntax="key [member [member ...]]",
        summary="Reply with the longitude and latitude of each member, null for a member that does not exist.",
        complexity="O(1) for each member requested.")(Geopos)


@command("geohash", arity=-2, flags="readonly", since="3.2.0", syntax="key [member [member ...]]",
         complexity="O(1) for each member requested.")
def geohash(session: Session, argv: list[bytes]) -> None:
    """Reply with the standard geohash of each member, 11 letters, null for a member that does not exist."""
    value = read_value(session, argv[1], Zset)
    session.out.array(len(argv) - 2)
    for member in argv[2:]:
        score = None if value is None else value.score(member)
        if score is None:
            session.out.null()
        else:
            session.out.bulk(geohash_text(score))


@cython.final
@cython.cclass
class Geodist(Implementation):
    """GEODIST (geodistCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the distance of two members."""
        db: Database = session.db
        if words.count > 5:
            raise syntax_error()
        metres: cython.double = unit_of(words, 4) if words.count == 5 else 1.0
        value: Zset | None = zset_at(db, db.locate_read(words))
        if value is None:
            return session.out.null()
        one: cython.double = value.find_score(words.at[2], words.size[2])
        other: cython.double = value.find_score(words.at[3], words.size[3])
        if one != one or other != other:
            return session.out.null()
        found: cython.double = distance(
            longitude_of(one), latitude_of(one), longitude_of(other), latitude_of(other), near(db)
        )
        return write_distance(session.out, found / metres)


command("geodist", arity=-4, flags="readonly", since="3.2.0", syntax="key member1 member2 [M | KM | FT | MI]",
        summary="Reply with the distance of two members, null if one does not exist.", complexity="O(1)")(Geodist)
