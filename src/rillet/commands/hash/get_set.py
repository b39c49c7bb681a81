"""HGETEX, HSETEX and HGETDEL: read or set fields and change their expiry (Redis: t_hash.c; Valkey's forms: valkey.py).

HGETEX is logged as HPEXPIREAT or HPERSIST, HSETEX with the absolute time (PXAT), HGETDEL as HDEL. A field whose new
time has passed is removed and logged as HDEL, also if HSETEX has just set it.

    since 8.4      the options in any order
    8.0 and 8.2    HGETEX key [one option] FIELDS numfields field [field ...]; HSETEX key, options in any order,
                   FIELDS numfields field value [field value ...]; FIELDS is the last option
"""

from __future__ import annotations

from rillet.commands.arguments import arity_error, integer, text
from rillet.commands.hash import command, valkey
from rillet.commands.hash.expire import ANY_ORDER, exact_fields
from rillet.commands.hash.get_set_path import HgetdelFastPath, HgetexFastPath, HsetexFastPath
from rillet.commands.hash.live import HELD, LiveFields
from rillet.commands.hash.times import DELETED, SET, TimeSetter, forget_if_last, parse_time
from rillet.commands.lookup import value_for_write
from rillet.commands.replies import bulk_or_null
from rillet.errors import CommandError
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.types.hash import Hash

_LINEAR = "O(N) where N is the number of specified fields"
_MOST = 2**31 - 1
_TIMES = "EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds"
# Option -> ms of its unit, and whether the time is relative.
_UNITS = {b"ex": (1000, True), b"px": (1, True), b"exat": (1000, False), b"pxat": (1, False)}


class _Options:
    """The arguments of HGETEX and HSETEX.

    expiry: one of the four options of a time, b"persist", b"keepttl" or b"". condition: b"fxx", b"fnx" or b"".
    now: the time at which the command began.
    """

    __slots__ = ("_mixed", "_session", "_sets", "condition", "count", "expiry", "expiry_at", "first", "now", "when")

    def __init__(self, session: Session, argv: list[bytes], sets: bool) -> None:
        self._session = session
        self._sets = sets
        self.now: int = session.db.clock.now_ms()
        self.expiry = self.condition = b""
        self.first = self.count = self.expiry_at = self.when = 0
        self._mixed = False
        if session.engine.settings.compat.knows(ANY_ORDER):
            self._parse(argv)
        elif sets:
            self._parse_before_fields(argv)
        else:
            self._parse_in_order(argv)

    def _parse_in_order(self, argv: list[bytes]) -> None:
        """Parse HGETEX of 8.0 and 8.2: at most one option, then FIELDS (hgetexCommand)."""
        at, word = 2, argv[2].lower()
        if word in _UNITS:
            at = self._take_time(argv, at, word)
        elif word == b"persist":
            self.expiry = word
            at = 3
        if at + 1 >= len(argv):
            raise arity_error(self._session.command.fullname)
        self.count = len(exact_fields(argv, at))
        self.first = at + 2

    def _parse_before_fields(self, argv: list[bytes]) -> None:
        """Parse HSETEX of 8.0 and 8.2: options in any order, then FIELDS (hsetexParseArgs)."""
        at = 2
        while at < len(argv):
            word = argv[at].lower()
            if word == b"fields":
                self._take_last_fields(argv, at)
                return
            if word in _UNITS:
                at = self._take_time(argv, at, word)
            elif word in (b"keepttl", b"fxx", b"fnx"):
                self._take_word(word)
                at += 1
            else:
                break
        raise CommandError(f"unknown argument: {text(argv[at])}")

    def _take_last_fields(self, argv: list[bytes], at: int) -> None:
        if at + 3 >= len(argv):
            raise arity_error(self._session.command.fullname)
        count = integer(argv[at + 1], "invalid number of fields")
        if not 1 <= count <= _MOST:
            raise CommandError("invalid number of fields")
        if 2 * count != len(argv) - at - 2:
            raise arity_error(self._session.command.fullname)
        self.first, self.count = at + 2, count

    def _parse(self, argv: list[bytes]) -> None:
        """Parse the arguments in any order (parseHashFieldExpireArgs)."""
        at, sets = 2, self._sets
        while at < len(argv):
            word = argv[at].lower()
            if word == b"fields":
                at = self._take_fields(argv, at)
            elif word in _UNITS:
                at = self._take_time(argv, at, word)
            elif self._is_known(word):
                self._take_word(word)
                at += 1
            else:
                raise CommandError(f"unknown argument: {text(argv[at])}")
        if not self.first:
            raise CommandError("missing FIELDS argument")
        if self._mixed or ((self.expiry == b"persist") == sets and self.expiry in (b"persist", b"keepttl")):
            raise CommandError("unknown argument")
        if self.condition and not sets:
            raise CommandError("unknown argument")

    def _is_known(self, word: bytes) -> bool:
        """Return whether a word is an option; until 8.6 those of the other command are rejected only at the end."""
        mine = (b"keepttl", b"fxx", b"fnx") if self._sets else (b"persist",)
        every = (b"keepttl", b"fxx", b"fnx", b"persist")
        return word in (mine if self._session.engine.settings.compat.knows(88) else every)

    def _take_fields(self, argv: list[bytes], at: int) -> int:
        if self.first:
            raise CommandError("FIELDS keyword specified multiple times")
        if at + 1 >= len(argv):
            raise arity_error(self._session.command.fullname)
        count = integer(argv[at + 1], "invalid number of fields")
        if not 1 <= count <= _MOST:
            raise CommandError("invalid number of fields")
        width = 2 if self._sets else 1
        if at + 2 + count * width > len(argv):
            raise CommandError("wrong number of arguments")
        self.first, self.count = at + 2, count
        return at + 2 + count * width

    def _take_time(self, argv: list[bytes], at: int, word: bytes) -> int:
        if self.expiry:
            raise self._one_expiry()
        if at + 1 == len(argv):
            raise CommandError("missing expire time")
        self.expiry, self.expiry_at = word, at + 1
        unit, relative = _UNITS[word]
        self.when = parse_time(self._session, argv[at + 1], unit, self.now if relative else 0)
        return at + 2

    def _take_word(self, word: bytes) -> None:
        if word in (b"fxx", b"fnx"):
            if self.condition:
                raise CommandError("Only one of FXX or FNX arguments can be specified")
            self.condition = word
        elif self.expiry in _UNITS or self.expiry == word or self._mixed:
            raise self._one_expiry()
        else:  # until 8.6, PERSIST and KEEPTTL do not exclude each other, but one of them is unknown
            self._mixed = self.expiry != b""
            self.expiry = word

    def _one_expiry(self) -> CommandError:
        last = "KEEPTTL" if self._sets else "PERSIST"
        return CommandError(f"Only one of EX, PX, EXAT, PXAT or {last} arguments can be specified")


@command("hgetex", arity=-5, flags="write fast", since="8.0.0", valkey="9.0.0",
         syntax=f"key [{_TIMES} | PERSIST] FIELDS numfields field [field ...]", complexity=_LINEAR,
         shortcut=HgetexFastPath)
def hgetex(session: Session, argv: list[bytes]) -> None:
    """Return the values of fields of a hash and change or remove their expiry."""
    if session.engine.settings.compat.valkey:
        valkey.get_and_expire(session, argv)
        return
    key, out = argv[1], session.out
    value = value_for_write(session, key, Hash)
    options = _Options(session, argv, False)
    names = argv[options.first : options.first + options.count]
    out.array(len(names))
    if value is None:
        for _ in names:
            out.null()
        return
    setter = TimeSetter(session, key, value, options.now) if options.expiry else None
    fields = LiveFields(session, key, value, HELD)
    updated: list[bytes] = []
    deleted: list[bytes] = []
    for name in names:
        content = fields.get(name)
        bulk_or_null(out, content)
        if content is not None and setter is not None:
            result = setter.persist(name) if options.expiry == b"persist" else setter.set(name, options.when)
            if result == SET:
                updated.append(name)
            elif result == DELETED:
                deleted.append(name)
    if setter is not None:
        setter.done()
    if not (fields.expired or updated or deleted):
        return
    session.modified(key)
    session.dirty += len(updated) + len(deleted) - 1
    if fields.expired:
        session.notify(b"h", b"hexpired", key, fields.expired)
    if updated:
        persists = options.expiry == b"persist"
        session.notify(b"h", b"hpersist" if persists else b"hexpire", key, updated)
        head = [b"HPERSIST", key] if persists else [b"HPEXPIREAT", key, decimal(options.when)]
        session.propagate([*head, b"FIELDS", decimal(len(names)), *names])
    elif deleted:
        session.notify(b"h", b"hdel", key, deleted)
        session.propagate_nothing()
    _delete_if_empty(session, key, value)


def _delete_if_empty(session: Session, key: bytes, value: Hash) -> None:
    if not len(value):
        session.db.delete(key)
        session.notify(b"g", b"del", key)


@command("hsetex", arity=-6, flags="write denyoom fast", since="8.0.0", valkey="9.0.0",
         syntax=f"key [FNX | FXX] [{_TIMES} | KEEPTTL] FIELDS numfields field value [field value ...]",
         complexity="O(N) where N is the number of fields being set.", shortcut=HsetexFastPath)
def hsetex(session: Session, argv: list[bytes]) -> None:
    """Set fields of a hash with an expiry, if all or none of them exist."""
    if session.engine.settings.compat.valkey:
        valkey.set_and_expire(session, argv)
        return
    options = _Options(session, argv, True)
    key = argv[1]
    value = value_for_write(session, key, Hash)
    names = argv[options.first : options.first + 2 * options.count : 2]
    if value is None:
        if options.condition == b"fxx":
            session.out.integer(0)
            return
        value = Hash()
        session.db.set(key, value)
    fields = LiveFields(session, key, value, HELD)
    if not _is_met(fields, names, options.condition):
        session.out.integer(0)
        if fields.expired:
            session.db.touch(key)
            session.notify(b"h", b"hexpired", key, fields.expired)
            _delete_if_empty(session, key, value)
        return
    _set_fields(session, argv, value, options, fields.expired)
    session.out.integer(1)


def _is_met(fields: LiveFields, names: list[bytes], condition: bytes) -> bool:
    """Return whether the condition FXX or FNX allows to set the fields; stop at the first that forbids it."""
    return not condition or all((fields.get(name) is not None) == (condition == b"fxx") for name in names)


def _set_fields(session: Session, argv: list[bytes], value: Hash, options: _Options, expired: list[bytes]) -> None:
    """Set the fields of HSETEX with their expiry (hsetexCommand)."""
    key, limits = argv[1], session.engine.settings
    value.prepare(argv[options.first :], limits)
    timed = options.expiry_at > 0
    setter = TimeSetter(session, key, value, options.now) if timed else None
    updated: list[bytes] = []
    deleted: list[bytes] = []
    names = argv[options.first : options.first + 2 * options.count : 2]
    for at, name in enumerate(names):
        value.set(name, argv[options.first + 2 * at + 1], limits, options.expiry != b"")
        if setter is not None:
            # A conversion by the line before keeps the expiry.
            (updated if setter.set(name, options.when) == SET else deleted).append(name)
    if setter is not None:
        setter.done()
    session.modified(key)
    session.dirty += len(names) - 1
    if deleted:
        session.propagate_nothing()
    elif timed and options.expiry != b"pxat":
        line = list(argv)
        line[options.expiry_at - 1 : options.expiry_at + 1] = [b"PXAT", decimal(options.when)]
        session.propagate(line)
    if expired:
        session.notify(b"h", b"hexpired", key, expired)
    session.notify(b"h", b"hset", key, names)
    if deleted:
        session.notify(b"h", b"hdel", key, deleted)
    elif updated:
        session.notify(b"h", b"hexpire", key, updated)
    _delete_if_empty(session, key, value)


@command("hgetdel", arity=-5, flags="write fast", since="8.0.0", valkey="9.1.0",
         syntax="key FIELDS numfields field [field ...]", complexity=_LINEAR, shortcut=HgetdelFastPath)
def hgetdel(session: Session, argv: list[bytes]) -> None:
    """Return the values of fields of a hash and remove those fields."""
    if session.engine.settings.compat.valkey:
        valkey.get_and_delete(session, argv)
        return
    key = argv[1]
    value = value_for_write(session, key, Hash)
    names = exact_fields(argv)
    earliest = 0 if value is None else value.earliest()
    fields = LiveFields(session, key, value, HELD)
    deleted: list[bytes] = []
    session.out.array(len(names))
    for name in names:
        content = fields.get(name)
        bulk_or_null(session.out, content)
        if content is not None and value is not None:
            value.remove(name)
            deleted.append(name)
    if value is None or not (fields.expired or deleted):
        return
    forget_if_last(session, key, value, earliest)
    session.modified(key)
    session.dirty += len(deleted) - 1
    if fields.expired:
        session.notify(b"h", b"hexpired", key, fields.expired)
    if deleted:
        session.notify(b"h", b"hdel", key, deleted)
        session.propagate([b"HDEL", key, *names])
    _delete_if_empty(session, key, value)
