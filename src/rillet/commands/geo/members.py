"""GEOADD, GEOPOS, GEOHASH and GEODIST (Redis: geo.c; structs/geohash.py has the scores).

A position is the score of a member, so every command on sorted sets applies. GEOADD is logged as the ZADD that it is.
The other commands are reads.
"""

from __future__ import annotations

from rillet.commands.arguments import syntax_error
from rillet.commands.geo import command
from rillet.commands.geo.fast_path import (
    UNITS,
    VALKEY_NEAR,
    GeoaddFastPath,
    GeodistFastPath,
    GeoposFastPath,
    members_with_scores,
)
from rillet.commands.geo.replies import write_coordinate, write_distance
from rillet.commands.lookup import read_value
from rillet.commands.zset.members import score_argument, zadd
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.geohash import LATITUDE, LONGITUDE, distance, encode, geohash_text, latitude_of, longitude_of
from rillet.structs.integer_text import decimal
from rillet.types.zset import Zset

_OPTIONS = (b"nx", b"xx", b"ch")


def near(session: Session) -> float:
    """Return the argument `near` of `geohash.distance` for the server to imitate."""
    return VALKEY_NEAR if session.engine.settings.compat.valkey else 0.0


def position(session: Session, words: list[bytes]) -> tuple[float, float]:
    """Parse a longitude and a latitude (extractLongLatOrReply)."""
    longitude, latitude = score_argument(session, words[0]), score_argument(session, words[1])
    if not (-LONGITUDE <= longitude <= LONGITUDE and -LATITUDE <= latitude <= LATITUDE):
        raise CommandError(f"invalid longitude,latitude pair {longitude:f},{latitude:f}")
    return longitude, latitude


def unit(word: bytes) -> float:
    """Return the metres of a unit (extractUnitOrReply)."""
    found = UNITS.get(word.lower().split(b"\0", 1)[0])
    if found is None:
        raise CommandError("unsupported unit provided. please use M, KM, FT, MI")
    return found


def as_scores(session: Session) -> bool:
    """Return whether coordinates are written as scores."""
    return bool(session.engine.settings.compat.knows(80))


@command("geoadd", arity=-5, flags="write denyoom", since="3.2.0",
         syntax="key [NX | XX]@6.2.0 [CH]@6.2.0 longitude latitude member [longitude latitude member ...]",
         complexity="O(log(N)) for each item added, where N is the number of elements in the sorted set.",
         shortcut=GeoaddFastPath)
def geoadd(session: Session, argv: list[bytes]) -> None:
    """Add members with their positions, or change their positions."""
    at = 2
    while at < len(argv) and argv[at].lower() in _OPTIONS:
        at += 1
    if (len(argv) - at) % 3 or (at > 3 and {b"nx", b"xx"} <= {word.lower() for word in argv[2:at]}):
        raise syntax_error()
    pairs = members_with_scores(argv, at)
    if pairs is None:
        pairs = []
        for first in range(at, len(argv), 3):
            longitude, latitude = position(session, argv[first : first + 2])
            pairs += [decimal(encode(longitude, latitude)), argv[first + 2]]
    words = [b"ZADD" if session.engine.settings.compat.valkey else b"zadd", *argv[1:at], *pairs]
    zadd(session, words)
    if session.dirty:
        session.propagate(words)


@command("geopos", arity=-2, flags="readonly", since="3.2.0", syntax="key [member [member ...]]",
         complexity="O(1) for each member requested.", shortcut=GeoposFastPath)
def geopos(session: Session, argv: list[bytes]) -> None:
    """Reply with the longitude and latitude of each member, null for a member that does not exist."""
    value = read_value(session, argv[1], Zset)
    session.out.array(len(argv) - 2)
    for member in argv[2:]:
        score = None if value is None else value.score(member)
        if score is None:
            session.out.null_array()
            continue
        session.out.array(2)
        write_coordinate(session.out, longitude_of(score), as_scores(session))
        write_coordinate(session.out, latitude_of(score), as_scores(session))


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


@command("geodist", arity=-4, flags="readonly", since="3.2.0", syntax="key member1 member2 [M | KM | FT | MI]",
         complexity="O(1)", shortcut=GeodistFastPath)
def geodist(session: Session, argv: list[bytes]) -> None:
    """Reply with the distance of two members, null if one does not exist."""
    if len(argv) > 5:
        raise syntax_error()
    metres = unit(argv[4]) if len(argv) == 5 else 1.0
    value = read_value(session, argv[1], Zset)
    one = None if value is None else value.score(argv[2])
    other = None if value is None else value.score(argv[3])
    if one is None or other is None:
        session.out.null()
        return
    found = distance(longitude_of(one), latitude_of(one), longitude_of(other), latitude_of(other), near(session))
    write_distance(session.out, found / metres)
