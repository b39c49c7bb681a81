"""SET, GET, GETEX, GETDEL, MSET, MSETEX, MGET and their variants (Redis: t_string.c).

A propagated command does not depend on the clock: `SET k v EX 10` becomes `SET k v PXAT <ms>`, GETEX becomes PEXPIREAT
or PERSIST, GETDEL becomes DEL, GETSET becomes SET.

Conditions of SET: NX, XX, and a comparison with the present value, IFEQ and IFNE, or with its digest, IFDEQ and IFDNE.
Valkey has IFEQ only. Redis accepts NX or XX behind a comparison, though not before it.

SET and GET without options are the most frequent commands: no argument, key or value of theirs becomes an object.

    GET key          key of the client's buffer -> entry -> packed string -> reply
    SET key value    key and value of the client's buffer -> arena of the keyspace
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.arguments import arity_error, integer, syntax_error
from rillet.commands.first_key_pop import KeysAfterNumber
from rillet.commands.keys.expire import deletion
from rillet.commands.string import command
from rillet.commands.string.set_options import (
    COMPARISONS,
    EXAT,
    EXPIRIES,
    GET,
    IFDEQ,
    IFDNE,
    IFEQ,
    IFNE,
    KEEPTTL,
    NX,
    PERSIST,
    PXAT,
    XX,
    SetOptions,
    expiry_ms,
    without_get,
)
from rillet.commands.string.values import (
    StringCommand,
    form_of_word,
    store_string,
    write_string_at,
    write_string_of,
)
from rillet.errors import CommandError
from rillet.keyspace import lru
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime import session_state
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.integer_text import decimal
from rillet.types.string import TEXT, hex_digest

if cython.compiled:
    from cython.cimports.libc.string import memcmp

_NX = cython.declare(cython.int, NX)
_XX = cython.declare(cython.int, XX)
_GET = cython.declare(cython.int, GET)
_KEEPTTL = cython.declare(cython.int, KEEPTTL)
_PERSIST = cython.declare(cython.int, PERSIST)
_ABSOLUTE = cython.declare(cython.int, EXAT | PXAT)
_EXAT = cython.declare(cython.int, EXAT)
_PXAT = cython.declare(cython.int, PXAT)
_EQUALITIES = cython.declare(cython.int, IFEQ | IFDEQ)
_OF_TEXT = cython.declare(cython.int, IFEQ | IFNE)
_IFEQ = cython.declare(cython.int, IFEQ)
_OF_SET = cython.declare(cython.int, NX | XX | GET | KEEPTTL | EXPIRIES | COMPARISONS)
_OF_GETEX = cython.declare(cython.int, PERSIST | EXPIRIES)
_OF_MSETEX = cython.declare(cython.int, NX | XX | KEEPTTL | EXPIRIES)
_LFU = cython.declare(cython.int, lru.LFU)
_TEXT = cython.declare(cython.int, TEXT)
_KEEPS_TEXT = cython.declare(cython.int, session_state.KEEPS_TEXT)


def meets(value: bytes, condition: int, operand: bytes) -> bool:
    """Return whether a string meets a comparison; raise CommandError for a digest of a wrong length."""
    if condition in (IFDEQ, IFDNE):
        if len(operand) != 16:
            raise CommandError("must be exactly 16 hexadecimal characters")
        return (hex_digest(value) == operand.split(b"\0", 1)[0].lower()) == (condition == IFDEQ)
    return (value == operand) == (condition == IFEQ)


@cython.final
@cython.cclass
class Set(StringCommand):
    """SET (setGenericCommand). _options: those of the last call, None while a call uses them."""

    __slots__ = ("_options",)
    _options: SetOptions | None

    def __init__(self) -> None:
        self._options = None

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Store a string at a key."""
        if words.count == 3:
            return self._store(session, words, None)
        options: SetOptions | None = self._options
        self._options = None
        if options is None:  # the first call, or one after an error, or one inside another
            options = SetOptions()
        options.read(session, words, 3, _OF_SET, _KEEPTTL)
        self._store(session, words, options)
        self._options = options
        return True

    @cython.cfunc
    def _store(self, session: Session, words: ArgumentSpans, options: SetOptions | None) -> cython.bint:
        """Copy a value from the client's bytes into the keyspace."""
        db: Database = session.db
        get: cython.bint = False
        keep_ttl: cython.bint = False
        when: cython.longlong = -1
        if options is not None:
            when = options.expires_at(session, words)
            get = options.flags & _GET != 0
            keep_ttl = options.flags & _KEEPTTL != 0
            if get:
                write_string_at(session, db.locate_read(words))
            if not self._admits(session, words, options, db.locate(words)):
                return True if get else session.out.null()
            if when >= 0 and options.expiry & _ABSOLUTE and _is_past(session, when):
                _delete_past(session, words.get(1))
                return True if get else session.out.ok()
        elif db.access.mode == _LFU:
            db.locate(words)  # the lookup of setKey
        db.replace_string_span(
            words.at[1], words.size[1], words.at[2], words.size[2],
            _TEXT if session.state & _KEEPS_TEXT else 0, keep_ttl,
        )
        session.changed(words, 1)
        if db.notifies:
            session.notify(b"$", b"set", words.get(1))
        if options is not None:
            if when >= 0:
                db.set_expire_span(words.at[1], words.size[1], when)
                if db.notifies:
                    session.notify(b"g", b"expire", words.get(1))
                if session.logged:
                    _log_expiring(session, words, options, when)
            elif get and session.logged:
                session.propagate(without_get(words, 3))
        return True if get else session.out.ok()

    @cython.cfunc
    def _admits(
        self, session: Session, words: ArgumentSpans, options: SetOptions, n: cython.Py_ssize_t
    ) -> cython.bint:
        """Return whether the conditions permit SET to replace entry n, or to create the key if n < 0."""
        if n < 0:
            return not options.flags & _XX and not options.condition & _EQUALITIES
        if options.condition == 0:
            return not options.flags & _NX
        if options.flags & _NX:
            return False
        if not options.valkey:
            session.db.locate_read(words)  # Redis looks the key up once more
        self.view(session.db.keys, n)
        at: cython.Py_ssize_t = options.operand_at
        same: cython.bint
        if not options.condition & _OF_TEXT:
            return meets(self.at[: self.size], options.condition, words.get(at))
        if not cython.compiled:
            same = self.at == words.at[at]
        else:
            same = self.size == words.size[at] and memcmp(self.at, words.at[at], self.size) == 0
        return same == (options.condition == _IFEQ)


command("set", arity=-3, flags="write denyoom", since="1.0.0",
        syntax="key value [NX | XX | <IFEQ ifeq-value>@8.4.0 | <IFNE ifne-value>@8.4.0 | <IFDEQ ifdeq-digest>@8.4.0 | "
        "<IFDNE ifdne-digest>@8.4.0] [GET] [EX seconds | PX milliseconds | EXAT unix-time-seconds | "
        "PXAT unix-time-milliseconds | KEEPTTL]", complexity="O(1)",
        summary="Store a string at a key, replacing any value.")(Set)


def _log_expiring(session: Session, words: ArgumentSpans, options: SetOptions, when: int) -> None:
    """Propagate SET with the absolute expiry; later versions keep the received command or name (setGenericCommand)."""
    compat = session.engine.settings.compat
    if options.expiry == PXAT and compat.knows(72):
        return
    named = words.count == 5 and (compat.knows(86) or compat.valkey)
    session.propagate([words.get(0) if named else b"SET", words.get(1), words.get(2), b"PXAT", decimal(when)])


def _is_past(session: Session, when: int) -> bool:
    """Return whether SET stores nothing because its expiry has passed: in Valkey, and in Redis since 8.8."""
    engine = session.engine
    if not engine.settings.compat.valkey and not engine.settings.compat.knows(88):
        return False
    return bool(when <= engine.clock.now_ms()) and not session.trusted and not engine.keeps_past


def _delete_past(session: Session, key: bytes) -> None:
    """Delete a key to which SET gives a past expiry; propagate and publish the deletion (setGenericCommand)."""
    settings = session.engine.settings
    if session.db.delete(key):
        session.modified(key)
        session.notify_deleted_by_time(key)
        lazy = settings.lazyfree_lazy_expire if settings.compat.valkey else settings.lazyfree_lazy_server_del
        session.propagate(deletion(key, lazy))
    if not settings.compat.valkey:
        session.engine.stats.expired_keys += 1  # as if the key was stored and expired


@cython.final
@cython.cclass
class Get(Implementation):
    """GET (getCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Copy a string from the keyspace to the reply."""
        return write_string_at(session, session.db.locate_read(words))


command("get", arity=2, flags="readonly fast", since="1.0.0", syntax="key", complexity="O(1)",
        summary="Return the string at a key.")(Get)


@command("setnx", arity=3, flags="write denyoom fast", since="1.0.0", syntax="key value", complexity="O(1)")
def setnx(session: Session, argv: list[bytes]) -> None:
    """Store a string, unless the key exists."""
    if session.db.find(argv[1]) >= 0:
        session.out.integer(0)
        return
    store_string(session, argv[1], argv[2], b"set")
    session.out.integer(1)


@cython.cfunc
def _set_expiring(session: Session, argv: list[bytes], unit: cython.longlong) -> cython.bint:
    key: bytes = argv[1]
    when = expiry_ms(session, integer(argv[2]), unit, True)
    store_string(session, key, argv[3], b"set")
    session.db.set_expire(key, when)
    session.notify(b"g", b"expire", key)
    if session.engine.log is not None:
        session.propagate([b"SET", key, argv[3], b"PXAT", decimal(when)])
    return session.out.ok()


@command("setex", arity=4, flags="write denyoom", since="2.0.0", syntax="key seconds value", complexity="O(1)")
def setex(session: Session, argv: list[bytes]) -> None:
    """Store a string that expires after some seconds."""
    _set_expiring(session, argv, 1000)


@command("psetex", arity=4, flags="write denyoom", since="2.6.0", syntax="key milliseconds value", complexity="O(1)")
def psetex(session: Session, argv: list[bytes]) -> None:
    """Store a string that expires after some milliseconds."""
    _set_expiring(session, argv, 1)


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


@cython.final
@cython.cclass
class Getex(StringCommand):
    """GETEX (getexCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with a string, and set or remove the expiry of its key."""
        db: Database = session.db
        when: cython.longlong = -1
        options: SetOptions = SetOptions()
        options.read(session, words, 2, _OF_GETEX, _PERSIST)
        # Valkey validates the time before the lookup.
        late: cython.bint = options.expiry != 0 and not session.engine.settings.compat.valkey
        if not late:
            when = options.expires_at(session, words)
        n: cython.Py_ssize_t = db.locate_read(words)
        if n >= 0 and late:
            self.view(db.keys, n)
            when = options.expires_at(session, words)
        write_string_at(session, n)
        if n < 0:
            return True
        key: bytes = words.get(1)
        if when >= 0:
            _expire_read(session, key, when, options.expiry & _ABSOLUTE != 0)
        elif options.flags & _PERSIST and db.persist(key):
            session.modified(key)
            session.notify(b"g", b"persist", key)
            if session.logged:
                session.propagate([b"PERSIST", key])
        return True


command("getex", arity=-2, flags="write fast", since="6.2.0",
        syntax="key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]",
        complexity="O(1)", summary="Return the string at a key and change its expiry.")(Getex)


def _expire_read(session: Session, key: bytes, when: int, absolute: bool) -> None:
    """Set the expiry of the key that GETEX read; an absolute time in the past deletes it."""
    engine = session.engine
    if absolute and when <= engine.clock.now_ms() and not session.trusted and not engine.keeps_past:
        session.db.delete(key)
        _note_deleted(session, key, by_time=True)
        return
    session.db.set_expire(key, when)
    session.modified(key)
    session.notify(b"g", b"expire", key)
    if engine.log is not None:
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


@cython.final
@cython.cclass
class Msetex(Implementation):
    """MSETEX (msetexCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Store strings at several keys with one expiry, if all keys, or none of them, exist."""
        argv: list[bytes] = words.to_list()
        count: cython.Py_ssize_t = _pair_count(session, argv)
        options: SetOptions = SetOptions()
        options.read(session, words, 2 * count + 2, _OF_MSETEX, _KEEPTTL)
        when: cython.longlong = options.expires_at(session, words)
        at: cython.Py_ssize_t
        if options.flags & (_NX | _XX):
            for at in range(2, 2 * count + 2, 2):
                if (session.db.find(argv[at]) >= 0) == (options.flags & _NX != 0):
                    return session.out.integer(0)
        _set_pairs(session, argv, count, when, options.flags & _KEEPTTL != 0)
        if session.logged and when >= 0 and options.expiry != _PXAT:
            if options.expiry != _EXAT or session.engine.settings.compat.valkey:
                words.put(options.expiry_at, b"PXAT")
                words.put(options.expiry_at + 1, decimal(when))
        return session.out.integer(1)


command("msetex", arity=-4, flags="write denyoom movablekeys", keys=(0, 0, 0), since="8.4.0", valkey="9.1.0",
        syntax="numkeys key value [key value ...] [NX | XX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | "
        "PXAT unix-time-milliseconds | KEEPTTL]", complexity="O(N) where N is the number of keys to set.",
        get_keys=KeysAfterNumber(1, step=2),
        summary="Store strings at several keys with one expiry, if all keys, or none of them, exist.")(Msetex)


@cython.cfunc
def _set_pairs(
    session: Session, argv: list[bytes], count: cython.Py_ssize_t, when: cython.longlong, keep_ttl: bool
) -> cython.bint:
    """Store the pairs of an MSETEX; when: their expiry, -1 if there is none. Valkey notifies of it last."""
    at: cython.Py_ssize_t
    db: Database = session.db
    valkey: cython.bint = session.engine.settings.compat.valkey
    events: cython.bint = db.notifies
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
