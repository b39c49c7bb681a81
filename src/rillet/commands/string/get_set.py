"""SET, GET, GETEX, GETDEL, MSET, MSETEX, MGET and their variants (Redis: t_string.c).

A propagated command does not depend on the clock: `SET k v EX 10` becomes `SET k v PXAT <ms>`, GETEX becomes PEXPIREAT
or PERSIST, GETDEL becomes DEL, GETSET becomes SET.

Conditions of SET: NX, XX, and a comparison with the present value, IFEQ and IFNE, or with its digest, IFDEQ and IFDNE
(structs/xxh3.py). Valkey has IFEQ only. Redis accepts NX or XX behind a comparison, though not before it.

SET and GET without options are the most frequent commands, so each handler treats this case first and allocates one
object at most.
"""

from __future__ import annotations

try:
    import cython
except ModuleNotFoundError:  # Cython is not installed: use a replacement for its names
    from rillet import _cython as cython

from rillet.commands.arguments import LLONG_MAX, arity_error, integer, syntax_error
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.commands.keys.expire import deletion
from rillet.commands.string import command
from rillet.commands.string.fast_path import GetFastPath, SetFastPath
from rillet.commands.string.set_options import GET, KEEPTTL, NX, PERSIST, XX, SetOptions, without_get
from rillet.commands.string.values import form_of_word, store_string, write_string, write_string_of
from rillet.errors import CommandError, WrongType
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.structs.xxh3 import hex_digest
from rillet.types.string import String

EXPIRY_OPTIONS = {b"EX": (1000, True), b"PX": (1, True), b"EXAT": (1000, False), b"PXAT": (1, False)}


def expiry_ms(session: Session, raw: bytes, option: bytes) -> int:
    """Parse the argument of an expiry option; return ms since the epoch (getExpireMillisecondsOrReply)."""
    unit, relative = EXPIRY_OPTIONS[option]
    value = integer(raw)
    name = session.command.fullname
    if value <= 0 or (unit == 1000 and value > LLONG_MAX // 1000):
        raise CommandError(f"invalid expire time in '{name}' command")
    when = value * unit + (session.engine.clock.now_ms() if relative else 0)
    if when > LLONG_MAX:
        raise CommandError(f"invalid expire time in '{name}' command")
    return int(when)


_NX = cython.declare(cython.int, NX)
_XX = cython.declare(cython.int, XX)
_GET = cython.declare(cython.int, GET)
_KEEPTTL = cython.declare(cython.int, KEEPTTL)
_PERSIST = cython.declare(cython.int, PERSIST)
_OF_SET = cython.declare(cython.int, NX | XX | GET | KEEPTTL)
_OF_MSETEX = cython.declare(cython.int, NX | XX | KEEPTTL)
COMPARISONS = (b"IFEQ", b"IFNE", b"IFDEQ", b"IFDNE")


def meets(value: bytes, condition: bytes, operand: bytes) -> bool:
    """Return whether a string meets a comparison; raise CommandError for a digest of a wrong length."""
    if condition in (b"IFDEQ", b"IFDNE"):
        if len(operand) != 16:
            raise CommandError("must be exactly 16 hexadecimal characters")
        return (hex_digest(value) == operand.split(b"\0", 1)[0].lower()) == (condition == b"IFDEQ")
    return (value == operand) == (condition == b"IFEQ")


@command("set", arity=-3, flags="write denyoom", since="1.0.0",
         syntax="key value [NX | XX | <IFEQ ifeq-value>@8.4.0 | <IFNE ifne-value>@8.4.0 | <IFDEQ ifdeq-digest>@8.4.0 | "
         "<IFDNE ifdne-digest>@8.4.0] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | "
         "PXAT unix-time-milliseconds | KEEPTTL]", complexity="O(1)", shortcut=SetFastPath)
def set_(session: Session, argv: list[bytes]) -> None:
    """Store a string at a key, replacing any value."""
    if len(argv) == 3:
        store_string(session, argv[1], argv[2], b"set")
        session.out.ok()
        return
    options: SetOptions = SetOptions(argv, 3, _OF_SET, _KEEPTTL, session.engine.settings.compat)
    _set_generic(session, argv[1], argv[2], options)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _set_generic(session: Session, key: bytes, data: bytes, options: SetOptions) -> cython.bint:
    """Run SET with options (t_string.c: setGenericCommand)."""
    flags: cython.int = options.flags
    get: cython.bint = flags & _GET != 0
    when: cython.longlong = -1
    if options.expiry is not None:
        when = expiry_ms(session, options.expiry, options.expiry_option)
    if get:
        write_string_of(session, key)
    found: cython.bint = session.db.find(key) >= 0
    if (
        (found and flags & _NX)
        or (not found and (flags & _XX or options.condition in (b"IFEQ", b"IFDEQ")))
        or (found and options.condition and not _is_met(session, key, options))
    ):
        return True if get else session.out.null()
    if when >= 0 and not EXPIRY_OPTIONS[options.expiry_option][1] and _is_past(session, when):
        if session.db.delete(key):
            _note_overwritten_by_time(session, key)
        if not session.engine.settings.compat.valkey:
            session.engine.statistics.expired_keys += 1  # as if the key was stored and expired
        return True if get else session.out.ok()
    session.db.replace_string(key, data, flags & _KEEPTTL != 0, form_of_word(session))
    session.modified(key)
    session.notify(b"$", b"set", key)
    if when >= 0:
        session.db.set_expire(key, when)
        session.notify(b"g", b"expire", key)
        if session.engine.log is not None:
            _propagate_expiring(session, options.expiry_option, data, when)
    elif get and session.engine.log is not None:
        session.propagate(without_get(session.argv, 3))
    return True if get else session.out.ok()


@cython.cfunc
@cython.exceptval(-1, check=False)
def _is_met(session: Session, key: bytes, options: SetOptions) -> cython.bint:
    """Return whether the string at an existing key meets the comparison of SET; Redis looks it up once more."""
    db = session.db
    value = db.peek(key) if session.engine.settings.compat.valkey else db.view_read(key)
    if not isinstance(value, String):
        raise WrongType()
    return meets(value.value(), options.condition, options.operand)


def _propagate_expiring(session: Session, option: bytes, data: bytes, when: int) -> None:
    """Propagate SET with the absolute expiry; later versions keep the received command or name (setGenericCommand)."""
    argv, compat = session.argv, session.engine.settings.compat
    if option == b"PXAT" and compat.knows(72):
        return
    name = argv[0] if len(argv) == 5 and (compat.knows(86) or compat.valkey) else b"SET"
    session.propagate([name, argv[1], data, b"PXAT", decimal(when)])


def _is_past(session: Session, when: int) -> bool:
    """Return whether SET stores nothing because its expiry has passed: in Valkey, and in Redis since 8.8."""
    engine = session.engine
    if not engine.settings.compat.valkey and not engine.settings.compat.knows(88):
        return False
    return bool(when <= engine.clock.now_ms()) and not session.trusted and not engine.keeps_past


def _note_overwritten_by_time(session: Session, key: bytes) -> None:
    """Propagate and publish a SET with a past expiry as a deletion (setGenericCommand)."""
    settings = session.engine.settings
    session.modified(key)
    session.notify_deleted_by_time(key)
    lazy = settings.lazyfree_lazy_expire if settings.compat.valkey else settings.lazyfree_lazy_server_del
    session.propagate(deletion(key, lazy))


@command("get", arity=2, flags="readonly fast", since="1.0.0", syntax="key", complexity="O(1)", shortcut=GetFastPath)
def get(session: Session, argv: list[bytes]) -> None:
    """Return the string at a key."""
    write_string_of(session, argv[1])


@command("setnx", arity=3, flags="write denyoom fast", since="1.0.0", syntax="key value", complexity="O(1)")
def setnx(session: Session, argv: list[bytes]) -> None:
    """Store a string, unless the key exists."""
    if session.db.find(argv[1]) >= 0:
        session.out.integer(0)
        return
    store_string(session, argv[1], argv[2], b"set")
    session.out.integer(1)


@cython.cfunc
def _set_expiring(session: Session, argv: list[bytes], option: bytes) -> cython.bint:
    key: bytes = argv[1]
    when = expiry_ms(session, argv[2], option)
    store_string(session, key, argv[3], b"set")
    session.db.set_expire(key, when)
    session.notify(b"g", b"expire", key)
    if session.engine.log is not None:
        session.propagate([b"SET", key, argv[3], b"PXAT", decimal(when)])
    return session.out.ok()


@command("setex", arity=4, flags="write denyoom", since="2.0.0", syntax="key seconds value", complexity="O(1)")
def setex(session: Session, argv: list[bytes]) -> None:
    """Store a string that expires after some seconds."""
    _set_expiring(session, argv, b"EX")


@command("psetex", arity=4, flags="write denyoom", since="2.6.0", syntax="key milliseconds value", complexity="O(1)")
def psetex(session: Session, argv: list[bytes]) -> None:
    """Store a string that expires after some milliseconds."""
    _set_expiring(session, argv, b"PX")


@command("getset", arity=3, flags="write denyoom fast", since="1.0.0", syntax="key value", complexity="O(1)")
def getset(session: Session, argv: list[bytes]) -> None:
    """Store a string and return the previous one."""
    write_string_of(session, argv[1])
    store_string(session, argv[1], argv[2], b"set")
    if session.engine.log is not None:
        session.propagate([b"SET", argv[1], argv[2]])


@command("getdel", arity=2, flags="write fast", since="6.2.0", syntax="key", complexity="O(1)")
def getdel(session: Session, argv: list[bytes]) -> None:
    """Return the string at a key and delete the key."""
    key = argv[1]
    write_string_of(session, key)
    if session.db.delete(key):
        _note_deleted(session, key)


def _note_deleted(session: Session, key: bytes, by_time: bool = False) -> None:
    session.modified(key)
    if by_time:
        session.notify_deleted_by_time(key)
    else:
        session.notify(b"g", b"del", key)
    if session.engine.log is not None:
        settings = session.engine.settings
        # A lazyfree setting affects GETDEL up to Redis 7.0 only (t_string.c: getdelCommand).
        lazy = settings.lazyfree_lazy_expire if by_time else (
            settings.lazyfree_lazy_user_del and not settings.compat.knows(72)
        )
        session.propagate(deletion(key, lazy))


@command("getex", arity=-2, flags="write fast", since="6.2.0",
         syntax="key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
         complexity="O(1)")
def getex(session: Session, argv: list[bytes]) -> None:
    """Return the string at a key and change its expiry."""
    options: SetOptions = SetOptions(argv, 2, _PERSIST, _PERSIST)
    key = argv[1]
    when = -1
    valkey = session.engine.settings.compat.valkey
    if valkey and options.expiry is not None:  # Valkey validates the time before the lookup
        when = expiry_ms(session, options.expiry, options.expiry_option)
    value = session.db.view_read(key)
    if isinstance(value, String) and options.expiry is not None and not valkey:
        when = expiry_ms(session, options.expiry, options.expiry_option)
    write_string(session.out, value)
    if value is None:
        return
    if when >= 0:
        _expire_read(session, key, when, options.expiry_option)
    elif options.flags & _PERSIST and session.db.persist(key):
        session.modified(key)
        session.notify(b"g", b"persist", key)
        if session.engine.log is not None:
            session.propagate([b"PERSIST", key])


def _expire_read(session: Session, key: bytes, when: int, option: bytes) -> None:
    """Set the expiry of the key that GETEX read; an absolute time in the past deletes it."""
    engine = session.engine
    past = option in (b"EXAT", b"PXAT") and when <= engine.clock.now_ms()
    if past and not session.trusted and not engine.keeps_past:
        session.db.delete(key)
        _note_deleted(session, key, by_time=True)
        return
    session.db.set_expire(key, when)
    session.modified(key)
    session.notify(b"g", b"expire", key)
    if session.engine.log is not None:
        session.propagate([b"PEXPIREAT", key, decimal(when)])


@command("mget", arity=-2, flags="readonly fast", keys=(1, -1, 1), since="1.0.0", syntax="key [key ...]",
         complexity="O(N) where N is the number of keys to retrieve.")
def mget(session: Session, argv: list[bytes]) -> None:
    """Return the strings at several keys, null for missing ones."""
    at: cython.Py_ssize_t
    out: ReplyWriter = session.out
    out.array(len(argv) - 1)
    for at in range(1, len(argv)):
        write_string_of(session, argv[at], True)


@cython.cfunc
def _set_many(session: Session, argv: list[bytes]) -> cython.bint:
    at: cython.Py_ssize_t
    for at in range(1, len(argv), 2):
        store_string(session, argv[at], argv[at + 1], b"set")
    return True


def _check_pairs(session: Session, argv: list[bytes]) -> None:
    if len(argv) % 2 == 0:
        raise arity_error(session.command.fullname)


@command("mset", arity=-3, flags="write denyoom", keys=(1, -1, 2), since="1.0.1", syntax="key value [key value ...]",
         complexity="O(N) where N is the number of keys to set.")
def mset(session: Session, argv: list[bytes]) -> None:
    """Store strings at several keys at once."""
    _check_pairs(session, argv)
    _set_many(session, argv)
    session.out.ok()


@command("msetnx", arity=-3, flags="write denyoom", keys=(1, -1, 2), since="1.0.1", syntax="key value [key value ...]",
         complexity="O(N) where N is the number of keys to set.")
def msetnx(session: Session, argv: list[bytes]) -> None:
    """Store strings at several keys, unless any of the keys exists."""
    _check_pairs(session, argv)
    for at in range(1, len(argv), 2):
        if session.db.find(argv[at]) >= 0:
            session.out.integer(0)
            return
    _set_many(session, argv)
    session.out.integer(1)


_INT_MAX = 2**31 - 1


def _pair_count(session: Session, argv: list[bytes]) -> int:
    """Return the number of keys of an MSETEX (getRangeLongFromObjectOrReply)."""
    valkey = session.engine.settings.compat.valkey
    message = "invalid numkeys value or out of range" if valkey else "invalid numkeys value"
    count = integer(argv[1], message)
    if not 1 <= count <= _INT_MAX:
        raise CommandError(message)
    if 2 * count + 2 > len(argv):
        raise syntax_error() if valkey else CommandError("wrong number of key-value pairs")
    return count


@command("msetex", arity=-4, flags="write denyoom movablekeys", keys=(0, 0, 0), since="8.4.0", valkey="9.1.0",
         syntax="numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | "
         "PXAT unix-time-milliseconds | KEEPTTL]", complexity="O(N) where N is the number of keys to set.",
         get_keys=KeysAfterNumber(1, step=2))
def msetex(session: Session, argv: list[bytes]) -> None:
    """Store strings at several keys with one expiry, if all keys, or none of them, exist."""
    count = _pair_count(session, argv)
    options: SetOptions = SetOptions(argv, 2 * count + 2, _OF_MSETEX, _KEEPTTL)
    when = -1
    if options.expiry is not None:
        when = expiry_ms(session, options.expiry, options.expiry_option)
    for at in range(2, 2 * count + 2, 2) if options.flags & (_NX | _XX) else ():
        if (session.db.find(argv[at]) >= 0) == bool(options.flags & _NX):
            session.out.integer(0)
            return
    _set_pairs(session, argv, count, when, bool(options.flags & _KEEPTTL))
    relative = options.expiry_option in (b"EX", b"PX")
    log: bool = session.engine.log is not None
    if log and (relative or (options.expiry_option == b"EXAT" and session.engine.settings.compat.valkey)):
        at = options.expiry_at
        session.propagate([*argv[:at], b"PXAT", decimal(when), *argv[at + 2 :]])
    session.out.integer(1)


@cython.cfunc
def _set_pairs(
    session: Session, argv: list[bytes], count: cython.Py_ssize_t, when: cython.longlong, keep_ttl: bool
) -> cython.bint:
    """Store the pairs of an MSETEX; when: their expiry, -1 if there is none. Valkey notifies of it last."""
    at: cython.Py_ssize_t
    db: Database = session.db
    valkey: cython.bint = session.engine.settings.compat.valkey
    events: cython.bint = session.engine.notify_events
    for at in range(2, 2 * count + 2, 2):
        key: bytes = argv[at]
        db.find(key)  # the lookup of setKey
        # An expiry that is replaced need not be removed.
        db.replace_string(key, argv[at + 1], keep_ttl or when >= 0, form_of_word(session))
        session.modified(key)
        if when >= 0:
            db.set_expire(key, when)
            if events and not valkey:
                session.notify(b"g", b"expire", key)
        if events:
            session.notify(b"$", b"set", key)
            if when >= 0 and valkey:
                session.notify(b"g", b"expire", key)
    return True
