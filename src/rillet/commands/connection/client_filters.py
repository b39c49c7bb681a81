"""The filters of CLIENT LIST and CLIENT KILL: one table of conditions, each a predicate on a session (networking.c).

    Redis    LIST [TYPE t | ID id ...]     KILL ID, TYPE, USER, ADDR, LADDR, SKIPME, and MAXAGE since 7.4
    Valkey   both commands: all filters below, each also with NOT- except SKIPME, MAXAGE and IDLE

A filter that is repeated replaces its earlier value. All filters must match.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet.commands.arguments import integer, small_integer, syntax_error, text
from rillet.errors import CommandError
from rillet.runtime.client_line import FLAG_LETTERS, flag_letters
from rillet.runtime.session import Session
from rillet.runtime.session_state import MASTER, REPLICA, SUBSCRIBED
from rillet.types.string import string2ll

Predicate = Callable[[Session], bool]
_CLIENT_TYPES = {b"normal": b"normal", b"slave": b"replica", b"replica": b"replica", b"pubsub": b"pubsub",
                 b"master": b"master"}  # fmt: skip


def type_of(session: Session) -> bytes:
    """Return the type of a client; one that watches commands is a normal client (getClientType)."""
    if session.state & MASTER:
        return b"master"
    if session.state & REPLICA:
        return b"replica"
    return b"pubsub" if session.state & SUBSCRIBED else b"normal"


def client_type(session: Session, raw: bytes) -> bytes:
    """Return the type that an argument names."""
    name = raw.lower()
    if name == b"primary" and session.engine.settings.compat.valkey:
        return b"master"
    if name not in _CLIENT_TYPES:
        raise CommandError(f"Unknown client type '{text(raw)}'")
    return _CLIENT_TYPES[name]


def _positive(raw: bytes, name: str) -> int:
    value = integer(raw, f"{name} is not an integer or out of range")
    if value <= 0:
        raise CommandError(f"{name} should be greater than 0")
    return value


def _age(session: Session) -> int:
    now: int = session.engine.clock.now_ms()
    return now // 1000 - session.created_ms // 1000


def _idle(session: Session) -> int:
    now: int = session.engine.clock.now_ms()
    return now // 1000 - session.last_ms // 1000


def _has_ip(session: Session, ip: bytes) -> bool:
    """Return whether the peer has this address and a port (clientMatchesIpFilter)."""
    peer = session.address("peer").removeprefix(b"[")
    if not peer.startswith(ip):
        return False
    rest = peer[len(ip) :].removeprefix(b"]")
    return rest[:1] == b":" and rest[1:2] != b"0"


def _database(session: Session, raw: bytes, name: str) -> int:
    index = small_integer(raw, f"{name} is not an integer or out of range")
    if not 0 <= index < len(session.engine.databases):
        raise CommandError(f"{name} number should be between 0 and {len(session.engine.databases) - 1}")
    return index


def _letters(raw: bytes, known: bytes, name: str, kind: str) -> bytes:
    """Return the letters of a filter; an unknown one is an error."""
    if any(letter not in known for letter in raw):
        where = f"the {name} filter" if name.startswith("NOT-") else "the provided filter"
        raise CommandError(f"Unknown {kind} found in {where}: {text(raw)}")
    return raw


def _cstring(raw: bytes) -> bytes:
    return raw.split(b"\0", 1)[0]


def _user(session: Session, raw: bytes) -> bytes:
    """Return the name of an existing user."""
    if raw not in session.engine.acl.users:
        raise CommandError(f"No such user '{text(raw)}'")
    return raw


def _value(session: Session, option: str, raw: bytes, name: str) -> Predicate | None:
    """Return the predicate of a filter with one value; None if the filter does not exist."""
    compat = session.engine.settings.compat
    if option == "addr":
        return lambda one: one.address("peer") == _cstring(raw)
    if option == "laddr":
        return lambda one: one.address("local") == _cstring(raw)
    if option == "type":
        kind = client_type(session, raw)
        return lambda one: type_of(one) == kind
    if option == "user":
        user = _user(session, raw)
        return lambda one: one.user == user
    if not compat.valkey:
        return None
    if option == "flags":
        letters = _letters(raw, FLAG_LETTERS, name, "flags")
        return lambda one: all(letter in flag_letters(one, compat) for letter in letters)
    if option == "name":
        return lambda one: one.name != b"" and one.name == _cstring(raw)
    if option == "lib-name":
        return lambda one: one.lib_name != b"" and one.lib_name == raw
    if option == "lib-ver":
        return lambda one: one.lib_ver != b"" and one.lib_ver == raw
    if option == "db":
        index = _database(session, raw, name)
        return lambda one: one.db.index == index
    if option == "capa":
        wanted = _letters(raw, b"r", name, "capa")
        return lambda one: not wanted or bool(one.extra.get("redirects"))
    if option == "ip":
        return lambda one: _has_ip(one, _cstring(raw))
    return None


def _not(predicate: Predicate) -> Predicate:
    return lambda one: not predicate(one)


def _ids(argv: list[bytes], at: int) -> tuple[set[int], int]:
    """Return the numbers from a position on, and the position after them."""
    found: set[int] = set()
    while at < len(argv):
        number = string2ll(argv[at])
        if number is None:
            break
        if number < 1:
            raise CommandError("client-id should be greater than 0")
        found.add(int(number))
        at += 1
    return found, at


def _in(numbers: set[int]) -> Predicate:
    return lambda one: one.id in numbers


def parse_filters(session: Session, argv: list[bytes], skip_me: bool) -> Predicate:
    """Return the predicate of all filters after argv[1]; skip_me: whether the caller is excluded by default."""
    compat = session.engine.settings.compat
    filters: dict[str, Predicate] = {}
    ids: dict[str, set[int]] = {}
    at = 2
    while at < len(argv):
        option, more = argv[at].lower().decode("latin-1"), at + 1 < len(argv)
        positive = option.removeprefix("not-") if compat.valkey else option
        if compat.valkey and positive == "id":
            numbers, at = _ids(argv, at + 1)
            ids.setdefault(option, set()).update(numbers)
            continue
        if not more:
            raise syntax_error()
        raw = argv[at + 1]
        if option == "id":
            number = integer(raw, "client-id should be greater than 0")
            if number < 1:
                raise CommandError("client-id should be greater than 0")
            ids["id"] = {number}
        elif option == "skipme" and raw.lower() in (b"yes", b"no"):
            skip_me = raw.lower() == b"yes"
        elif option == "maxage" and (compat.knows(74) or compat.valkey):
            filters[option] = _at_least(_age, _positive(raw, option))
        elif option == "idle" and compat.valkey:
            filters[option] = _at_least(_idle, _positive(raw, option))
        else:
            predicate = _value(session, positive, raw, option.upper())
            if predicate is None:
                raise syntax_error()
            filters[option] = predicate if positive == option else _not(predicate)
        at += 2
    for option, numbers in ids.items():
        filters[option] = _in(numbers) if option == "id" else _not(_in(numbers))
    conditions = list(filters.values())
    return lambda one: not (skip_me and one is session) and all(condition(one) for condition in conditions)


def _at_least(measure: Callable[[Session], int], least: int) -> Predicate:
    return lambda one: measure(one) >= least


def is_listed(session: Session, caller: Session) -> bool:
    """Return whether a session is one of a client, or of the master: one that replays the append-only file is none."""
    return not session.trusted or session is caller or session.state & MASTER != 0


def listed(caller: Session) -> list[Any]:
    """Return the sessions of all clients."""
    return [one for one in caller.engine.sessions.values() if is_listed(one, caller)]
