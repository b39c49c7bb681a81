"""GEOADD, GEOPOS, GEOHASH and GEODIST (Redis: geo.c; structs/geohash.py has the scores).

A position is the score of a member, so every command on sorted sets applies. GEOADD is logged as the ZADD that it is.
The other commands are reads.
"""

from __future__ import annotations

from rillet.commands import table_replies
from rillet.commands.arguments import syntax_error
from rillet.commands.geo import command
from rillet.commands.lookup import read_value
from rillet.commands.zset.members import score_argument, zadd
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.geohash import LATITUDE, LONGITUDE, distance, encode, geohash_text, latitude_of, longitude_of
from rillet.structs.integer_text import decimal
from rillet.types.zset import Zset

_OPTIONS = (b"nx", b"xx", b"ch")
_UNITS = {b"m": 1.0, b"km": 1000.0, b"ft": 0.3048, b"mi": 1609.34}
VALKEY_NEAR = 1e-15
"""Valkey treats longitudes that differ by a few nanometres as equal."""


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
    found = _UNITS.get(word.lower().split(b"\0", 1)[0])
    if found is None:
        raise CommandError("unsupported unit provided. please use M, KM, FT, MI")
    return found


def distance_text(metres: float) -> bytes:
    """Format a distance with four decimals (util.c: fixedpoint_d2string); NaN becomes C's smallest integer."""
    scaled = round(metres * 10000.0) if metres == metres else -(2**63)
    digits = decimal(abs(scaled)).rjust(5, b"0")
    return (b"-" if scaled < 0 else b"") + digits[:-4] + b"." + digits[-4:]


def write_coordinate(session: Session, degrees: float) -> None:
    """Write a longitude or a latitude: as a score since Redis 8.0, else with 17 decimals (addReplyHumanLongDouble)."""
    compat = session.engine.settings.compat
    if compat.knows(80):
        table_replies.write_score(session.out, degrees, False)
        return
    text = (b"%.17f" % degrees).rstrip(b"0").rstrip(b".")
    if text == b"-0":
        text = b"0"
    if session.out.resp == 2:
        session.out.bulk(text)
    else:
        session.out.raw(b"," + text + b"\r\n")


@command("geoadd", arity=-5, flags="write denyoom", since="3.2.0",
         syntax="key [NX | XX]@6.2.0 [CH]@6.2.0 longitude latitude member [longitude latitude member ...]",
         complexity="O(log(N)) for each item added, where N is the number of elements in the sorted set.")
def geoadd(session: Session, argv: list[bytes]) -> None:
    """Add members with their positions, or change their positions."""
    at = 2
    while at < len(argv) and argv[at].lower() in _OPTIONS:
        at += 1
    options = {word.lower() for word in argv[2:at]}
    if (len(argv) - at) % 3 or {b"nx", b"xx"} <= options:
        raise syntax_error()
    words = [b"ZADD" if session.engine.settings.compat.valkey else b"zadd", *argv[1:at]]
    for first in range(at, len(argv), 3):
        longitude, latitude = position(session, argv[first : first + 2])
        words += [decimal(encode(longitude, latitude)), argv[first + 2]]
    zadd(session, words)
    if session.dirty:
        session.propagate(words)


@command("geopos", arity=-2, flags="readonly", since="3.2.0", syntax="key [member [member ...]]",
         complexity="O(1) for each member requested.")
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
        write_coordinate(session, longitude_of(score))
        write_coordinate(session, latitude_of(score))


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
         complexity="O(1)")
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
    session.out.bulk(distance_text(found / metres))
