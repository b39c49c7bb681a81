"""Actions on pending entries and groups: each one is a list of commands, shown before it runs.

    claim        XCLAIM key group consumer 0 id ...           gives the entries to a consumer
    ack          XACK key group id ...                        ends their processing
    nack         XNACK key group FAIL IDS n id ...            releases them (Redis 8.8, rillet)
    dead-letter  XADD target * fields, XACK                   moves each entry to another stream
    requeue      XADD key * fields, XACK                      adds each entry again, as a new one
    move         XGROUP SETID key group id                    moves the group
    delete-consumer, delete-group                             XGROUP DELCONSUMER, XGROUP DESTROY

`plan` reads what it needs and returns the commands; nothing is written. `perform` makes the plan again and runs it only
if it equals the commands that the user confirmed, so a user never confirms one thing and gets another. A dead letter is
added before its entry is acknowledged, in one transaction, except in a cluster where the two keys may be in different
slots: there it is two commands in this order, so a failure between them leaves the entry pending, and never loses it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from rillet.errors import CommandError
from rillet.inspector.console import join_words, reply_tree
from rillet.inspector.place import InspectedPlace
from rillet.inspector.text import from_text
from rillet.store.arguments.encoding import decode
from rillet.store.consuming.dead_letters import letter
from rillet.store.store import Store
from rillet.types.stream.id import StreamID

MOST = 1000
"""The most entries of one action."""
_SHOWN = 50  # commands of a preview that are shown in full
_LONG = 2000  # characters of a command in a preview


class NotConfirmed(Exception):
    """The commands differ from those that the user confirmed."""


def plan(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    """Return the commands of an action; ValueError if the request is incomplete."""
    name = str(request.get("action", ""))
    maker = _MAKERS.get(name)
    if maker is None:
        raise ValueError(f"the action {name!r} is unknown: use one of {', '.join(_MAKERS)}")
    return maker(place, store, request)


def preview(commands: list[list[bytes]]) -> dict[str, Any]:
    """Return the commands as text, long ones cut, for the confirmation."""
    lines = [join_words(argv) for argv in commands]
    return {
        "commands": [line if len(line) <= _LONG else line[:_LONG] + " ..." for line in lines[:_SHOWN]],
        "count": len(lines),
        "confirm": _seal(commands),
    }


def perform(place: InspectedPlace, store: Store, request: dict[str, Any]) -> dict[str, Any]:
    """Run an action whose commands were confirmed; NotConfirmed if they have changed since the preview."""
    place.allow_write()
    commands = plan(place, store, request)
    if request.get("confirm") != _seal(commands):
        raise NotConfirmed("the data changed since the preview: look at the commands again")
    replies = store.run_many(commands)
    return {"replies": [reply_tree(reply) for reply in replies[:_SHOWN]], "count": len(replies)}


def _seal(commands: list[list[bytes]]) -> str:
    digest = hashlib.sha256()
    for argv in commands:
        digest.update(b"%d\n" % len(argv))
        for word in argv:
            digest.update(b"%d:" % len(word) + word)
    return digest.hexdigest()


def _word(request: dict[str, Any], name: str) -> bytes:
    """Return the name of something that exists: it may be empty."""
    value = request.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name!r} is missing")
    return from_text(value)


def _new_word(request: dict[str, Any], name: str) -> bytes:
    """Return a name that the user types: an empty one was forgotten."""
    if not request.get(name):
        raise ValueError(f"{name!r} is missing")
    return _word(request, name)


def _ids(request: dict[str, Any]) -> list[bytes]:
    given = request.get("ids")
    if not isinstance(given, list) or not given:
        raise ValueError("'ids' is missing: select entries first")
    if len(given) > MOST:
        raise ValueError(f"an action has at most {MOST} entries")
    return [str(StreamID.parse(str(one))).encode() for one in given]


def _claim(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    key, group, consumer = _word(request, "key"), _word(request, "group"), _new_word(request, "consumer")
    idle = int(request.get("min_idle", 0))
    return [[b"XCLAIM", key, group, consumer, b"%d" % max(0, idle), *_ids(request)]]


def _ack(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return [[b"XACK", _word(request, "key"), _word(request, "group"), *_ids(request)]]


def _nack(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    if not _knows(store, "XNACK"):
        raise ValueError(f"{place.server} has no XNACK: Redis 8.8 and rillet have it. Claim the entries instead")
    mode = str(request.get("mode", "FAIL")).upper()
    if mode not in ("FAIL", "FATAL", "SILENT"):
        raise ValueError("'mode' is FAIL, FATAL or SILENT")
    ids = _ids(request)
    key, group = _word(request, "key"), _word(request, "group")
    return [[b"XNACK", key, group, mode.encode(), b"IDS", b"%d" % len(ids), *ids]]


def _copied(place: InspectedPlace, store: Store, request: dict[str, Any], target: bytes) -> list[list[bytes]]:
    """Return the commands that add each pending entry to the target and acknowledge it."""
    key, group = _word(request, "key"), _word(request, "group")
    commands: list[list[bytes]] = []
    gone, settled = [], []
    for id in _ids(request):
        rows = store.run([b"XRANGE", key, id, id, b"COUNT", b"1"])
        pending = store.run([b"XPENDING", key, group, id, id, b"1"])
        if not pending:
            settled.append(id.decode())
        elif not rows:
            gone.append(id.decode())
        elif target == key:
            commands.append([b"XADD", key, b"*", *rows[0][1]])
        else:
            commands.append(letter(target, rows[0][1], key, group, id, int(pending[0][3])))
        commands.append([b"XACK", key, group, id])
    if settled:
        raise ValueError(f"{', '.join(settled[:5])} are no longer pending in the group: a consumer has handled them")
    if gone:
        raise ValueError(f"{', '.join(gone[:5])} no longer exist in the stream: acknowledge them instead")
    return commands if place.is_cluster and target != key else [[b"MULTI"], *commands, [b"EXEC"]]


def _dead_letter(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    target = _new_word(request, "target")
    if target == _word(request, "key"):
        raise ValueError("'target' is the stream itself: use requeue to add the entries again")
    kind = decode(store.run([b"TYPE", target]))
    if kind not in ("stream", "none"):  # EXEC continues after a command that fails: the entries would be lost
        raise ValueError(f"'target' {decode(target)!r} is a {kind}, not a stream")
    return _copied(place, store, request, target)


def _requeue(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return _copied(place, store, request, _word(request, "key"))


def _move(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    id = str(request.get("id", ""))
    where = b"$" if id == "$" else str(StreamID.parse(id)).encode()
    return [[b"XGROUP", b"SETID", _word(request, "key"), _word(request, "group"), where]]


def _delete_consumer(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return [[b"XGROUP", b"DELCONSUMER", *(_word(request, name) for name in ("key", "group", "consumer"))]]


def _delete_group(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return [[b"XGROUP", b"DESTROY", _word(request, "key"), _word(request, "group")]]


def _knows(store: Store, name: str) -> bool:
    try:
        return bool(store.execute("COMMAND", "INFO", name)[0])
    except CommandError:
        return False


_MAKERS: dict[str, Callable[[InspectedPlace, Store, dict[str, Any]], list[list[bytes]]]] = {
    "claim": _claim, "ack": _ack, "nack": _nack, "dead-letter": _dead_letter, "requeue": _requeue, "move": _move,
    "delete-consumer": _delete_consumer, "delete-group": _delete_group,
}  # fmt: skip
ACTIONS = tuple(_MAKERS)


__all__ = ["ACTIONS", "MOST", "NotConfirmed", "perform", "plan", "preview"]
