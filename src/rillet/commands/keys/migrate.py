"""MIGRATE: copy keys to another server, and delete them here (Redis: cluster.c, migrateCommand).

    key -> DUMP payload -> RESTORE key ttl payload [REPLACE] -> the other server -> +OK -> DEL key

`EngineServices.exchange` sends the commands: a server has the sockets. As in Redis, nothing else runs meanwhile, up to
the timeout, so that a key never exists on both servers for other clients. A key is deleted and its DEL is logged only
after the other server has accepted it; after a lost connection a key may exist on both.
"""

from __future__ import annotations

from typing import NamedTuple

from rillet.commands.arguments import integer, syntax_error, text
from rillet.commands.keys import command
from rillet.commands.keys.expire import deletion
from rillet.errors import CommandError
from rillet.protocol.peer_replies import Replies
from rillet.runtime.session import Session
from rillet.structs.integer_text import decimal
from rillet.types.compat import NEWEST
from rillet.types.module import KeyPlace
from rillet.types.rdb import value as rdb

_DEFAULT_TIMEOUT = 1000  # milliseconds


def _is_error(reply: bytes) -> bool:
    return reply.startswith(b"-")


class _Options(NamedTuple):
    copy: bool
    replace: bool
    login: list[bytes]
    keys: list[bytes]


def key_positions(argv: list[bytes]) -> list[int]:
    """Return the positions of the keys: the third argument, or those after KEYS (db.c: migrateGetKeys).

    A key in both places is a syntax error; such a call has no keys.
    """
    if len(argv) > 6:
        at = 6
        while at < len(argv):
            word = argv[at].lower()
            if word == b"keys":
                return [] if argv[3] else list(range(at + 1, len(argv))) or [3]
            at += {b"auth": 2, b"auth2": 3}.get(word, 1)
    return [3]


def _options(argv: list[bytes]) -> _Options:
    copy = replace = False
    login: list[bytes] = []
    keys = [argv[3]]
    at = 6
    while at < len(argv):
        word, left = argv[at].lower(), len(argv) - at - 1
        if word == b"copy":
            copy = True
        elif word == b"replace":
            replace = True
        elif word == b"auth" and left:
            at += 1
            login = [argv[at]]
        elif word == b"auth2" and left >= 2:
            login = [argv[at + 1], argv[at + 2]]
            at += 2
        elif word == b"keys":
            if argv[3]:
                raise CommandError("When using MIGRATE KEYS option, the key argument must be set to the empty string")
            keys = argv[at + 1 :]
            break
        else:
            raise syntax_error()
        at += 1
    return _Options(copy, replace, login, keys)


@command("migrate", arity=-6, flags="write movablekeys", keys=(3, 3, 1), get_keys=key_positions, since="2.6.0",
         syntax='host port <key | ""> destination-db timeout [COPY] [REPLACE] '
                "[AUTH password | AUTH2 username password] [KEYS key [key ...]]",
         complexity="O(bytes of the values)")  # fmt: skip
def migrate(session: Session, argv: list[bytes]) -> None:
    """Move keys to another server."""
    options = _options(argv)
    timeout = integer(argv[5])
    target = integer(argv[4])
    if timeout <= 0:
        timeout = _DEFAULT_TIMEOUT
    moving = _payloads(session, options)
    if not moving:
        session.out.simple(b"NOKEY")
        return
    setup = [[b"AUTH", *options.login]] if options.login else []
    replies = session.engine.services.exchange((text(argv[1]), text(argv[2])), setup, target,
                                           [argv for _, argv in moving], timeout)
    _finish(session, options, [key for key, _ in moving], replies)


def _payloads(session: Session, options: _Options) -> list[tuple[bytes, list[bytes]]]:
    """Return the keys that exist, with the commands that create them on the other server."""
    settings, database = session.engine.settings, session.db
    native = settings.dump_format == "native" or settings.compat is not NEWEST
    moving = []
    for key in options.keys:
        value = database.view_read(key)
        if value is None:
            continue
        now = database.clock.now_ms()
        place = KeyPlace(database.index, key)
        payload = rdb.dump(value, settings.rdbcompression, settings.compat if native else None, now, place)
        when = database.get_expire(key)
        ttl = 0 if when < 0 else max(when - now, 1)
        moving.append((key, [b"RESTORE", key, decimal(ttl), payload, *([b"REPLACE"] if options.replace else [])]))
    return moving


def _finish(session: Session, options: _Options, keys: list[bytes], replies: Replies) -> None:
    """Delete the keys that the other server has accepted; reply with its first error, or OK."""
    failure = next(filter(_is_error, (*replies.setup, *replies.keys)), None)
    before, after = replies.setup, replies.keys
    if not options.copy and not any(map(_is_error, before)):
        for key, reply in zip(keys, after, strict=False):
            if not _is_error(reply) and session.db.delete(key):
                session.modified(key)
                session.notify(b"g", b"del", key)
                session.propagate(deletion(key, False))
    if replies.broken:
        session.out.error(f"IOERR error or timeout {replies.broken}".encode())
    elif failure is not None:
        session.out.error(b"ERR Target instance replied with error: " + failure[1:])
    else:
        session.out.ok()
