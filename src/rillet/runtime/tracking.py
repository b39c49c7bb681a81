"""Client-side caching: which client may hold which key in its cache, and the messages that invalidate it (tracking.c).

    CLIENT TRACKING ON          a client reads b"user:1"   ->  table[b"user:1"] = the client's ID
                                anyone changes b"user:1"   ->  >2 invalidate [user:1], and the entry is removed
    CLIENT TRACKING ON BCAST    prefixes[b"user:"] -> {client}, and the keys that changed since the last messages:
                                one message for each client and prefix, when the loop has served its clients

The table is one for all databases: a key of the same name in another database invalidates it, too, as in Redis. It
holds IDs, so a client that leaves costs nothing: its IDs go with the next change of each key. The setting
`tracking-table-max-keys` limits the table. Above the limit, random keys are invalidated as if they had changed.

A message for a client that runs a command follows the reply of its outermost command (`pending`; in Redis,
tracking_pending_keys). Messages for other clients go out at once.

    redirect    the messages of a client go to another one: RESP3 a push, RESP2 a message of __redis__:invalidate

Costs: nothing while no client tracks (Engine.observed). While one does, a read of a client that tracks costs
O(its keys), a change O(clients that read the key + prefixes), FLUSHALL O(clients).
"""

from __future__ import annotations

from random import randrange
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

from rillet._cython import cython, public

if cython.compiled:
    from cython.cimports.libc.string import memcmp  # type: ignore[import-not-found, unused-ignore]

from rillet.keyspace.database import KeyObserver
from rillet.runtime import session_state
from rillet.runtime.registry import Command
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal

_RUNNING = cython.declare(cython.int, session_state.RUNNING)
_CLOSING = cython.declare(cython.int, session_state.CLOSING)
_SUBSCRIBED = cython.declare(cython.int, session_state.SUBSCRIBED)
_IN_MULTI = cython.declare(cython.int, session_state.IN_MULTI)
_MUTED = cython.declare(cython.int, session_state.MUTED)

_PUSH = b">2\r\n$10\r\ninvalidate\r\n"
_MESSAGE = b"*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n"
_BROKEN = b">2\r\n$21\r\ntracking-redir-broken\r\n:"
# Keys that one call of `limit` invalidates, multiplied by the calls in a row that did not suffice.
_NO_KEYS = cython.declare(list, [b""] * 16)  # of `_reported`; nothing is ever put into it
_LAST_PLACE = cython.declare(cython.int, 15)
_EFFORT = 100


@cython.final
@cython.cclass
class ClientTracking:
    """The options of one client; it stays with the session after CLIENT TRACKING OFF, because the table may name it."""

    __slots__ = ("on", "bcast", "optin", "optout", "noloop", "caching", "broken", "redirect", "prefixes")
    on: public[cython.bint]
    bcast: public[cython.bint]
    optin: public[cython.bint]
    optout: public[cython.bint]
    noloop: public[cython.bint]
    caching: public[cython.bint]
    broken: public[cython.bint]
    redirect: public[cython.longlong]
    prefixes: public[dict[bytes, None]]

    def __init__(self) -> None:
        self.redirect = 0
        self.prefixes = {}
        self.clear()

    @cython.ccall
    def clear(self) -> cython.bint:
        """Turn everything off, except that `redirect` keeps its value."""
        self.on = self.bcast = self.optin = self.optout = self.noloop = self.caching = self.broken = False
        return True


@cython.final
@cython.cclass
class KeyReaders:
    """The clients that read a key: one ID or a set of IDs; `at` is the key's position in Tracking.names."""

    __slots__ = ("ids", "at")
    ids: public[object]
    at: public[cython.Py_ssize_t]

    def __init__(self, ids: object, at: cython.Py_ssize_t) -> None:
        self.ids = ids
        self.at = at


@cython.final
@cython.cclass
class PrefixState:
    """The clients of a prefix, and the keys that changed since the last broadcast, each with its last writer."""

    __slots__ = ("clients", "keys", "prefix")
    clients: public[dict[Session, None]]
    keys: public[dict[bytes, Any]]
    prefix: bytes

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.clients = {}
        self.keys = {}


@cython.final
@cython.cclass
class Tracking(KeyObserver):
    """The tracking table and the prefixes of one engine. `clients` is the number of clients with tracking on.

    current: the client whose command runs, or is about to run; writer: the session that changes keys now, which differs
    from `current` in a script.
    """

    __slots__ = ("engine", "table", "names", "items", "prefixes", "clients", "current", "pending", "limit",
                 "early", "_misses", "_posted", "_flushing", "_immediate", "_reported", "_reporter",
                 "_states")  # fmt: skip
    engine: public[CommandEngine]
    table: public[dict[bytes, KeyReaders]]
    names: public[list[bytes]]
    items: public[cython.Py_ssize_t]
    prefixes: public[dict[bytes, PrefixState]]
    clients: public[cython.Py_ssize_t]
    current: public[Any]
    pending: public[list[Any]]
    limit: public[cython.Py_ssize_t]
    _misses: cython.Py_ssize_t
    _posted: cython.bint
    _reported: list[bytes]
    _reporter: object
    _states: list[PrefixState]
    _flushing: cython.bint
    _immediate: cython.bint
    early: public[cython.bint]

    def __init__(self, engine: CommandEngine) -> None:
        self.engine = engine
        self.table = {}
        self.names = []
        self.items = 0
        self.prefixes = {}
        self.clients = 0
        self.current = None
        self.writer = None
        # Keys to invalidate for `current` after its reply; None stands for all keys.
        self.pending = []
        # tracking-table-max-keys; 0: no limit.
        self.limit = 0
        self._misses = 0
        self._posted = False
        self._flushing = False
        self._immediate = False
        # The states of `prefixes`.
        self._states = []
        # Keys that are reported already: `_reporter` may change them again without a report. One key for each place.
        self._reported = _NO_KEYS
        self._reporter = None
        # Up to 7.0, the message of another client precedes the reply of the client that receives it.
        self.early = False

    @property
    def in_use(self) -> bool:
        """True if changes of keys must be reported: a client tracks, or the table names one that did."""
        return bool(self.clients or self.table)

    # -- clients -------------------------------------------------------------------------------------

    def enable(self, session: Session, redirect: int, options: set[bytes], prefixes: list[bytes]) -> None:
        """Turn tracking on, or change its options; the caller has checked them (enableTracking). O(prefixes)"""
        state: ClientTracking = session.tracking or ClientTracking()
        session.tracking = state
        if not state.on:
            self.clients += 1
        caching = state.caching
        state.clear()
        state.on, state.caching, state.redirect = True, caching, redirect
        state.bcast, state.noloop = b"bcast" in options, b"noloop" in options
        state.optin, state.optout = b"optin" in options, b"optout" in options
        if state.bcast:
            for prefix in prefixes or [b""]:
                self.prefixes.setdefault(prefix, PrefixState(prefix)).clients[session] = None
                state.prefixes[prefix] = None
        self._states = list(self.prefixes.values())
        self._reported = _NO_KEYS
        self.engine.observe()

    def disable(self, session: Session) -> None:
        """Turn tracking off; the table keeps the session's ID (disableTracking). O(prefixes)"""
        state: ClientTracking | None = session.tracking
        if state is None or not state.on:
            return
        self.clients -= 1
        state.clear()
        for prefix in state.prefixes:
            here: PrefixState = self.prefixes[prefix]
            del here.clients[session]
            if not here.clients:
                del self.prefixes[prefix]
        state.prefixes = {}
        self._states = list(self.prefixes.values())
        self.engine.observe()

    def forget(self, session: Session) -> None:
        """Remove a session that ends. Clear the table when it can name no client anymore. O(prefixes + sessions)"""
        self.disable(session)
        session.tracking = None
        self._reported, self._reporter = _NO_KEYS, None
        if not self.clients and self.table and all(one.tracking is None for one in self.engine.sessions.values()):
            self._clear_table()
            self.engine.observe()

    # -- reads ---------------------------------------------------------------------------------------

    @cython.ccall
    def remember(self, session: Session, entry: Command, argv: list[bytes]) -> cython.bint:
        """Record that the session has read the keys of a command (trackingRememberKeys). O(keys)"""
        state: ClientTracking | None = session.tracking
        if state is None or not state.on or state.bcast:
            return False
        if (state.optin and not state.caching) or (state.optout and state.caching):
            return False
        self._reported = _NO_KEYS
        number: object = session.id
        readers: KeyReaders | None
        for position in entry.key_positions(argv):
            key: bytes = argv[position]
            readers = self.table.get(key)
            if readers is None:
                self.table[key] = KeyReaders(number, len(self.names))
                self.names.append(key)
                self.items += 1
            elif isinstance(readers.ids, set):
                if number not in readers.ids:
                    readers.ids.add(number)
                    self.items += 1
            elif readers.ids != number:
                readers.ids = {readers.ids, number}
                self.items += 1
        return True

    # -- changes -------------------------------------------------------------------------------------

    @cython.cfunc
    def invalidate(self, key: bytes, writer: object) -> cython.bint:
        """Report the change of a key; `writer` is the session that changed it, None for the server itself."""
        if writer is not self._reporter:
            self._reported = _NO_KEYS
        return self._report(key, len(key), key, writer) is not None

    @cython.cfunc
    def invalidate_span(self, at: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.bint:
        """Report that `writer` has changed a key: `size` bytes at an address."""
        place: cython.int = 0
        if self.writer is not self._reporter:
            self._reported, self._reporter = _NO_KEYS, self.writer
        if size > 0:
            place = (at[size - 1] + size) & _LAST_PLACE
            before: bytes = self._reported[place]
            if len(before) == size and same(at, before, size):
                return False
        key: bytes | None = self._report(at, size, None, self.writer)
        if key is None:
            return False
        if self._reported is _NO_KEYS:
            self._reported = _NO_KEYS.copy()
        self._reported[place] = key
        return True

    @cython.cfunc
    def _report(
        self, at: cython.p_const_uchar, size: cython.Py_ssize_t, key: bytes | None, writer: object
    ) -> bytes | None:
        """Report the change of a key to the clients that it concerns; return the key, None if there is none.

        key: the bytes at the address, if they are an object already. O(prefixes + clients that read the key)
        """
        state: PrefixState
        found: cython.bint = False
        for state in self._states:
            if len(state.prefix) <= size and (len(state.prefix) == 0 or same(at, state.prefix, len(state.prefix))):
                if key is None:
                    key = at[:size]
                state.keys[key] = writer
                found = True
        if found and self.current is None:
            self.schedule()
        if self.table:
            if key is None:
                key = at[:size]
            self._send_key(key)
            found = True
        return key if found else None

    @cython.cfunc
    def _send_key(self, key: bytes) -> cython.bint:
        """Send a key to the clients that read it, and remove it from the table (trackingInvalidateKey)."""
        readers: KeyReaders | None = self.table.get(key)
        if readers is None:
            return False
        ids: Any = sorted(readers.ids) if isinstance(readers.ids, set) else (readers.ids,)
        self._remove(key, readers)
        self.items -= len(ids)
        sessions: dict[int, Session] = self.engine.sessions
        body: bytes = b""
        target: Session | None
        state: ClientTracking | None
        for number in ids:
            target = sessions.get(number)
            state = None if target is None else target.tracking
            if target is None or state is None or not state.on or state.bcast:
                continue
            if target is self.current:
                if state.noloop:
                    continue
                if target.state & _RUNNING:
                    self.pending.append(key)
                    continue
            body = body or _array((key,))
            self._send(target, state, body)
        if not self.table and not self.clients:
            self.engine.observe()
        return True

    @cython.cfunc
    def _remove(self, key: bytes, readers: KeyReaders) -> cython.bint:
        """Remove a key from the table; the last name takes its position. O(1)"""
        del self.table[key]
        last: bytes = self.names.pop()
        if last is not key and last != key:
            self.names[readers.at] = last
            moved: KeyReaders = self.table[last]
            moved.at = readers.at
        return True

    @cython.cfunc
    def _clear_table(self) -> cython.bint:
        self.table = {}
        self.names = []
        self.items = 0
        return True

    def invalidate_all(self) -> None:
        """Report that a database was emptied: every client drops its whole cache (trackingInvalidateKeysOnFlush)."""
        state: ClientTracking | None
        for session in list(self.engine.sessions.values()):
            state = session.tracking
            if state is None or not state.on:
                continue
            if session is self.current:
                self.pending.append(None)
            else:
                self._send(session, state, _null(session))
        self._clear_table()
        self.engine.observe()
        self.engine.restart_changes()

    # -- messages ------------------------------------------------------------------------------------

    @cython.cfunc
    def _send(self, session: Session, state: ClientTracking, body: bytes) -> cython.bint:
        """Send an invalidation to the session, or to the one that receives its messages (sendTrackingMessage)."""
        target: Session | None
        if state.redirect:
            target = self.engine.sessions.get(state.redirect)
            if target is None or (target.state & _CLOSING and self.engine.settings.compat.valkey):
                state.broken = True
                if session.out.resp > 2:
                    self._deliver(session, _BROKEN + decimal(state.redirect) + b"\r\n")
            elif target.out.resp > 2:
                self._deliver(target, _PUSH + body)
            elif target.state & _SUBSCRIBED:
                self._deliver(target, _MESSAGE + body)
        elif session.out.resp > 2:
            self._deliver(session, _PUSH + body)
        return True

    @cython.cfunc
    def _deliver(self, session: Session, data: bytes) -> cython.bint:
        """Append a message to the output of a session: after its reply, if it runs a command."""
        if session.state & _CLOSING:
            return False
        here: cython.bint = session is self.current
        if session.state & _RUNNING and not self._immediate and not (self.early and here):
            return session.postpone(data)
        if here and (self._flushing or session.state & _MUTED):
            return session.postpone(data)
        session.out.raw(data)
        if not here and session.on_message is not None:
            session.on_message()
        return True

    @cython.ccall
    def command_ended(self, session: Session, entry: Command | None) -> cython.bint:
        """Act at the end of an outermost command: send what waited for its reply, and end CLIENT CACHING."""
        state: ClientTracking | None = session.tracking
        if self.pending:
            self._flushing = True
            self.send_pending(session)
            self._flushing = False
        if state is not None and state.caching and not session.state & _IN_MULTI:
            if entry is None or (entry.container or entry.name) != "client":
                state.caching = False
        return True

    @cython.ccall
    def send_pending(self, session: Session) -> cython.bint:
        """Send the messages that waited for the reply of the running command (trackingHandlePendingKeyInvalidations).

        In a handler they precede the rest of the reply.
        """
        state: ClientTracking | None = session.tracking
        pending: list[Any] = self.pending
        self.pending = []
        if state is not None:
            self._immediate = not self._flushing
            for key in pending:
                self._send(session, state, _null(session) if key is None else _array((key,)))
            self._immediate = False
        return True

    # -- broadcasts ----------------------------------------------------------------------------------

    @cython.ccall
    def schedule(self) -> cython.bint:
        """Let the services call `broadcast` soon if keys were recorded for it."""
        state: PrefixState
        if self._posted:
            return True
        for state in self.prefixes.values():
            if state.keys:
                self._posted = True
                self.engine.services.broadcast_soon()
                return True
        return False

    def broadcast(self) -> None:
        """Send the recorded keys to the clients in BCAST mode (trackingBroadcastInvalidationMessages)."""
        here: PrefixState
        state: ClientTracking
        self._posted = False
        self._reported = _NO_KEYS
        if not self.prefixes:
            return
        for prefix in sorted(self.prefixes):
            here = self.prefixes[prefix]
            keys, here.keys = here.keys, {}
            if not keys:
                continue
            names = sorted(keys)
            body = _array(names)
            for session in list(here.clients):
                state = session.tracking
                if state.noloop:
                    others = [key for key in names if keys[key] is not session]
                    if others:
                        self._send(session, state, _array(others))
                else:
                    self._send(session, state, body)

    # -- the limit of the table ----------------------------------------------------------------------

    @cython.cfunc
    def is_full(self) -> cython.bint:
        """Return whether the table is too large, or was so at the last call of `make_room`."""
        return self._misses > 0 or (self.limit > 0 and len(self.table) > self.limit)

    @cython.ccall
    def make_room(self) -> cython.bint:
        """Invalidate some random keys while the table is too large (trackingLimitUsedSlots)."""
        if not self.clients:
            return True
        if self.limit and len(self.table) > self.limit:
            for _ in range(_EFFORT * (self._misses + 1)):
                self._send_key(self.names[randrange(len(self.names))])
                if len(self.table) <= self.limit:
                    self._misses = 0
                    return True
            self._misses += 1
            return False
        self._misses = 0
        return True

    def check(self) -> None:
        """Assert that the table, the prefixes and the sessions agree. O(keys)"""
        assert len(self.names) == len(self.table) and not self.pending and self.current is None
        readers = [self.table[key] for key in self.names]
        assert all(one.at == at for at, one in enumerate(readers))
        assert self.items == sum(len(one.ids) if isinstance(one.ids, set) else 1 for one in readers)
        tracking = [one for one in self.engine.sessions.values() if one.tracking is not None and one.tracking.on]
        assert self.clients == len(tracking)
        for prefix, here in self.prefixes.items():
            assert here.clients and all(prefix in one.tracking.prefixes for one in here.clients)
        for session in tracking:
            assert bool(session.tracking.prefixes) == session.tracking.bcast
            assert all(session in self.prefixes[prefix].clients for prefix in session.tracking.prefixes)


@cython.cfunc
def same(at: cython.p_const_uchar, word: bytes, size: cython.Py_ssize_t) -> cython.bint:
    """Return whether `size` bytes at an address are those of a word of at least this size."""
    if cython.compiled:
        other: cython.p_const_uchar = word
        return memcmp(at, other, size) == 0
    return bool(at[:size] == word[:size])


def _null(session: Session) -> bytes:
    """Return null in the protocol of the tracking client, even if another client receives it, as Redis does."""
    return b"_\r\n" if session.out.resp > 2 else b"$-1\r\n"


def _array(keys: Any) -> bytes:
    """Return an array of bulk strings."""
    parts: list[bytes] = [b"*" + decimal(len(keys)) + b"\r\n"]
    for key in keys:
        parts.append(b"$" + decimal(len(key)) + b"\r\n" + key + b"\r\n")
    return b"".join(parts)
