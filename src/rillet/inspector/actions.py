"""Actions on entries, groups, dead letters and keys: each one is a list of commands, shown before it runs.

    claim        XCLAIM key group consumer 0 id ...           gives the entries to a consumer
    ack          XACK key group id ...                        ends their processing
    nack         XNACK key group FAIL IDS n id ...            releases them (Redis 8.8, rillet)
    dead-letter  XADD target * fields, XACK                   moves each entry to another stream
    requeue      XADD key * fields, XACK                      adds each entry again, as a new one
    move         XGROUP SETID key group id                    moves the group
    delete-consumer, delete-group                             XGROUP DELCONSUMER, XGROUP DESTROY
    requeue-letters     XADD stream * own fields, XDEL        moves dead letters back to their streams
    add, delete, trim   XADD, XDEL, XTRIM MINID               changes a stream; `delete` also drops dead letters
    create-group        XGROUP CREATE key group id            makes a group
    delete-key          UNLINK key

`plan` reads what it needs and returns the commands; nothing is written. `perform` makes the plan again and runs it only
if it equals the commands that the user confirmed, so a user never confirms one thing and gets another. A dead letter is
added before its entry is acknowledged, in one transaction, except in a cluster where the two keys may be in different
slots: there it is two commands in this order, so a failure between them leaves the entry pending, and never loses it.
A transaction watches the stream while its plan is made again, so an entry that another operator requeues at the same
time is not added twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from rillet.errors import CommandError, TransactionConflict
from rillet.inspector.console import join_words, reply_tree
from rillet.inspector.place import InspectedPlace
from rillet.inspector.text import from_text
from rillet.store.arguments.encoding import decode
from rillet.store.consuming.dead_letters import letter, origin_of, own_fields
from rillet.store.store import Store
from rillet.types.stream.id import StreamID

MOST = 1000
"""The most entries of one action."""
_SHOWN = 50  # commands of a preview that are shown in full
_LONG = 2000  # characters of a command in a preview
_TRIES = 20  # of a transaction, while other clients change the stream


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
    commands = _confirmed(place, store, request)
    replies = _together(place, store, request) if commands[0] == [b"MULTI"] else store.run_many(commands)
    return {"replies": [reply_tree(reply) for reply in replies[:_SHOWN]], "count": len(replies)}


def _confirmed(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    commands = plan(place, store, request)
    if request.get("confirm") != _seal(commands):
        raise NotConfirmed("the data changed since the preview: look at the commands again")
    return commands


def _together(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[Any]:
    """Run the transaction of a plan that is made again while its stream is watched."""
    for _ in range(_TRIES):
        try:
            with store.transaction(watch=[_word(request, "key")]) as transaction:
                queued = [transaction.execute(*argv) for argv in _confirmed(place, store, request)[1:-1]]
            return [one.result for one in queued]
        except TransactionConflict:
            continue
    raise NotConfirmed("other clients change the stream all the time: nothing was done; try again")


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
    _require_stream(store, target)
    return _copied(place, store, request, target)


def _requeue_letters(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    """Return the commands that add each letter to the stream it came from, or to `target`, and delete it."""
    key, target = _word(request, "key"), _word(request, "target") if request.get("target") else None
    if target == key:
        raise ValueError("'target' is the dead-letter stream itself")
    commands: list[list[bytes]] = []
    gone, nowhere = [], []
    targets = set()
    for id in _ids(request):
        rows = store.run([b"XRANGE", key, id, id, b"COUNT", b"1"])
        if not rows:
            gone.append(id.decode())
            continue
        to = target or origin_of(rows[0][1]).stream
        if to is None or to == key:
            nowhere.append(id.decode())
            continue
        targets.add(to)
        commands += [[b"XADD", to, b"*", *own_fields(rows[0][1])], [b"XDEL", key, id]]
    if gone:
        raise ValueError(f"{', '.join(gone[:5])} no longer exist: they were requeued or dropped")
    if nowhere:
        raise ValueError(f"{', '.join(nowhere[:5])} do not name the stream they came from: type a stream")
    for to in sorted(targets):
        _require_stream(store, to)
    return commands if place.is_cluster else [[b"MULTI"], *commands, [b"EXEC"]]


def _require_stream(store: Store, target: bytes) -> None:
    """Raise ValueError if a key is not a stream: EXEC continues after a command that fails, and entries are lost."""
    kind = decode(store.run([b"TYPE", target]))
    if kind not in ("stream", "none"):
        raise ValueError(f"'target' {decode(target)!r} is a {kind}, not a stream")


def _requeue(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return _copied(place, store, request, _word(request, "key"))


def _move(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return [[b"XGROUP", b"SETID", _word(request, "key"), _word(request, "group"), _position(request)]]


def _create_group(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return [[b"XGROUP", b"CREATE", _word(request, "key"), _new_word(request, "group"), _position(request)]]


def _position(request: dict[str, Any]) -> bytes:
    """Return the ID after which a group continues, or $."""
    id = str(request.get("id", ""))
    return b"$" if id == "$" else str(StreamID.parse(id)).encode()


def _add(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    given = request.get("fields")
    lines = [line for line in (given if isinstance(given, str) else "").splitlines() if line.strip()]
    pairs = [line.partition("=") for line in lines]
    if not pairs:
        raise ValueError("'fields' is missing: write a line name=value for each field")
    for name, sign, _ in pairs:
        if not sign or not name:
            raise ValueError(f"{name[:80]!r} is not a field: write name=value")
    words = [from_text(part) for name, _, value in pairs for part in (name, value)]
    return [[b"XADD", _new_word(request, "key"), b"*", *words]]


def _delete(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return [[b"XDEL", _word(request, "key"), *_ids(request)]]


def _trim(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    first = str(StreamID.parse(str(request.get("id", "")))).encode()
    return [[b"XTRIM", _word(request, "key"), b"MINID", first]]


def _delete_key(place: InspectedPlace, store: Store, request: dict[str, Any]) -> list[list[bytes]]:
    return [[b"UNLINK", _word(request, "key")]]


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
    "delete-consumer": _delete_consumer, "delete-group": _delete_group, "requeue-letters": _requeue_letters,
    "create-group": _create_group, "add": _add, "delete": _delete, "trim": _trim, "delete-key": _delete_key,
}  # fmt: skip
ACTIONS = tuple(_MAKERS)
