"""DEBUG: the subcommands that Redis's public test suite needs (Redis: debug.c).

In Redis, DEBUG is one command, not a container. It returns an error unless `enable-debug-command` allows it, because it
can stop the server or delete data. Here each subcommand is a function; its docstring is the help text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rillet.commands.arguments import integer, subcommand_error, text
from rillet.commands.replies import ReplySet, write_tree
from rillet.commands.server import command
from rillet.commands.server.config import allows, rewrite_config
from rillet.errors import CommandError, Loading
from rillet.keyspace.database import Database
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.field_expiry import field_clock
from rillet.runtime.replication import new_id
from rillet.runtime.session import Session
from rillet.runtime.settings.setting_types import parse_memory
from rillet.structs.dict import Dict
from rillet.structs.quicklist import Quicklist
from rillet.types import digest
from rillet.types.list import List
from rillet.types.module import KeyPlace
from rillet.types.rdb import value as rdb
from rillet.types.string import String

_NOT_ALLOWED = (
    'DEBUG command not allowed. If the enable-debug-command option is set to "local", you can run it from a local '
    "connection, otherwise you need to set this option in the configuration file, and then restart the server."
)
_NUMBER = re.compile(rb"\s*([+-]?\d+)")

# Only these subcommands, which use no data, are safe while the server loads its data.
_WHILE_LOADING = frozenset((b"help", b"sleep", b"log", b"error", b"protocol", b"repl-pause", b"set-active-expire"))

Action = Callable[[Session, list[bytes]], None]
# Subcommand -> its function, least and greatest number of arguments, and usage.
_ACTIONS: dict[bytes, tuple[Action, int, int, str]] = {}


def action(name: str, least: int, most: int | None = None, usage: str = "") -> Callable[[Action], Action]:
    """Register a subcommand; the numbers of arguments include DEBUG and the name."""

    def record(action: Action) -> Action:
        _ACTIONS[name.encode()] = (action, least, most or least, f"{name.upper()} {usage}".strip())
        return action

    return record


@command("debug", arity=-2, flags="admin noscript loading stale protected", since="1.0.0",
         syntax="subcommand [arg [arg ...]]", complexity="Depends on the sub-command")
def debug(session: Session, argv: list[bytes]) -> None:
    """Inspect or disturb the server, for tests."""
    if not allows(session, session.engine.settings.enable_debug_command):
        raise CommandError(_NOT_ALLOWED)
    action, least, most, _usage = _ACTIONS.get(argv[1].lower(), (None, 0, 0, ""))
    if action is None or not least <= len(argv) <= most:
        raise subcommand_error(argv)
    if session.engine.loading and argv[1].lower() not in _WHILE_LOADING:
        raise Loading()
    action(session, argv)


@action("help", 2)
def _help(session: Session, argv: list[bytes]) -> None:
    """Show this help."""
    lines = ["DEBUG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"]
    for action, _least, _most, usage in _ACTIONS.values():
        lines += [usage, f"    {(action.__doc__ or '').strip()}"]
    session.out.array(len(lines))
    for line in lines:
        session.out.simple(line.encode())


# -- time and logging -------------------------------------------------------------------------------


@action("sleep", 3, usage="<seconds>")
def _sleep(session: Session, argv: list[bytes]) -> None:
    """Stop the server for some seconds."""
    try:
        seconds = float(argv[2])
    except ValueError:
        seconds = 0.0
    session.engine.clock.sleep(max(min(seconds, 86400.0), 0.0))
    session.out.ok()


def atoi(raw: bytes) -> int:
    """Return the leading number of the text, 0 if there is none (C's atoi)."""
    match = _NUMBER.match(raw)
    return int(match[1]) if match else 0


@action("set-active-expire", 3, usage="<0|1>")
def _set_active_expire(session: Session, argv: list[bytes]) -> None:
    """Turn active expiry on or off; expired keys are always deleted at a lookup."""
    session.engine.active_expire = atoi(argv[2]) != 0
    session.out.ok()


@action("set-allow-access-expired", 3, usage="<0|1>")
def _set_allow_access_expired(session: Session, argv: list[bytes]) -> None:
    """Let commands see expired keys and fields of hashes, which are not deleted."""
    session.engine.allow_access_expired = atoi(argv[2]) != 0
    session.out.ok()


@action("log", 3, usage="<message>")
def _log(session: Session, argv: list[bytes]) -> None:
    """Write a line to the server's log."""
    session.engine.services.log_line("DEBUG LOG: " + text(argv[2]))
    session.out.ok()


# -- values -----------------------------------------------------------------------------------------


@action("object", 3, 4, "<key> [fast]")
def _object(session: Session, argv: list[bytes]) -> None:
    """Show internals of the value at a key; `fast`, in Valkey, leaves out the fields that need the whole value."""
    if len(argv) == 4 and not session.engine.settings.compat.valkey:
        raise subcommand_error(argv)
    fast = len(argv) == 4 and argv[3].lower() == b"fast"
    keys = session.db.keys
    n = keys.find(argv[2])
    if n < 0:
        raise CommandError("no such key")
    value: Any = session.db.value_at(n)
    at = id(keys) + n  # the entry: a value at rest has no object
    bits = keys.lru(n)
    place = KeyPlace(session.db.index, argv[2])
    length = ""
    if not fast:
        size = len(rdb.dump(value, session.engine.settings.rdbcompression, place=place)) - 11
        length = f"serializedlength:{size} "
    nodes = _nodes(value.elements, fast) if isinstance(value, List) and not value.elements.single else ""
    rule = session.engine.settings.compat.embedding
    encoding = value.encoding_at(len(argv[2]), rule) if isinstance(value, String) else value.encoding()
    session.out.simple(
        f"Value at:{at:#x} refcount:1 encoding:{encoding} {length}"
        f"lru:{bits} lru_seconds_idle:{session.db.access.idle_time(bits)}{nodes}".encode()
    )


def _nodes(elements: Quicklist, fast: bool) -> str:
    """Return the statistics of DEBUG OBJECT about the nodes of a quicklist."""
    text = (
        f" ql_nodes:{elements.nodes} ql_avg_node:{elements.count / elements.nodes:.2f} "
        f"ql_listpack_max:{elements.fill} ql_compressed:{int(elements.depth > 0)}"
    )
    return text if fast else f"{text} ql_uncompressed_size:{sum(node.nbytes() for node in elements.chain())}"


@action("htstats", 3, 4, "<dbid> [full]")
def _htstats(session: Session, argv: list[bytes]) -> None:
    """Show statistics of the hash tables of a database; `full` adds the lengths of the chains since 7.4."""
    full = len(argv) == 4 and argv[3].lower() == b"full"
    if len(argv) == 4 and not session.engine.settings.compat.knows(74):
        raise subcommand_error(argv)
    index = integer(argv[2])
    if not 0 <= index < len(session.engine.databases):
        raise CommandError("Out of range database")
    database = session.engine.databases[index]
    full = full or not session.engine.settings.compat.knows(74)
    text = f"[Dictionary HT]\n{database.keys.stats(full)}[Expires HT]\n{database.expires.stats(full)}"
    session.out.verbatim(text.encode())


@action("htstats-key", 3, 4, "<key> [full]")
def _htstats_key(session: Session, argv: list[bytes]) -> None:
    """Show statistics of the hash table of a value; `full` adds the lengths of the chains since 7.4."""
    knows_full = session.engine.settings.compat.knows(74)
    if len(argv) == 4 and not knows_full:
        raise subcommand_error(argv)
    value = session.db.view_untouched(argv[2], False)
    if value is None:
        raise CommandError("no such key")
    table = _hash_table(value)
    if table is None:
        raise CommandError("The value stored at the specified key is not represented using an hash table")
    full = not knows_full or (len(argv) == 4 and argv[3].lower() == b"full")
    session.out.verbatim(table.stats(full).encode())


def _hash_table(value: Any) -> Dict | None:
    """Return the dict of a value in the encoding hashtable or skiplist."""
    table: Dict | None = getattr(value, "table", None)
    return table


@action("keysizes-hist-assert", 3, 3, "<0|1>")
def _keysizes_hist_assert(session: Session, argv: list[bytes]) -> None:
    """Do nothing: INFO KEYSIZES is computed from the keys, so there is no histogram that could be wrong."""
    integer(argv[2])
    session.out.ok()


@action("digest", 2)
def _digest(session: Session, argv: list[bytes]) -> None:
    """Show a digest of all databases."""
    databases = ((database.index, _keys(database)) for database in session.engine.databases if len(database))
    found = digest.data_digest(databases, session.engine.settings.compat, field_clock(session.db))
    session.out.simple(found.hex().encode())


def _keys(database: Database) -> Iterator[tuple[bytes, object, bool]]:
    for key, value in database.items():
        yield key, value, key in database.expires


@action("digest-value", 2, 1 << 30, "<key> [<key> ...]")
def _digest_value(session: Session, argv: list[bytes]) -> None:
    """Show a digest of each key's value."""
    database = session.db
    session.out.array(len(argv) - 2)
    for key in argv[2:]:
        value = database.peek(key)
        found = digest.ZERO
        if value is not None:
            compat, now = session.engine.settings.compat, field_clock(database)
            place = KeyPlace(database.index, key)
            found = digest.value_digest(value, key in database.expires, digest.ZERO, compat, now, place)
        session.out.simple(found.hex().encode())


@action("quicklist-packed-threshold", 3, usage="<size>")
def _quicklist_packed_threshold(session: Session, argv: list[bytes]) -> None:
    """Set the size from which a list element is stored in a node without other elements; 0 restores the setting."""
    size = parse_memory(text(argv[2]))
    if size is None or not 0 <= size <= (1 << 32) - (1 << 20):
        raise CommandError("argument must be a memory value bigger than 1 and smaller than 4gb")
    session.engine.settings.quicklist_packed_threshold = size
    session.engine.take_settings()
    session.out.ok()


# -- disk -------------------------------------------------------------------------------------------


@action("reload", 2, 5, "[NOSAVE] [NOFLUSH] [MERGE]")
def _reload(session: Session, argv: list[bytes]) -> None:
    """Save the RDB file, empty all databases and load it; without a file, encode and decode each value."""
    options = {word.lower() for word in argv[2:]}
    if not options <= {b"merge", b"noflush", b"nosave"}:
        raise CommandError("DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options.")
    if b"noflush" not in options:
        session.engine.tracking.invalidate_all()
    session.engine.services.reload(
        save=b"nosave" not in options, flush=b"noflush" not in options, merge=b"merge" in options
    )
    session.out.ok()


@action("loadaof", 2)
def _loadaof(session: Session, argv: list[bytes]) -> None:
    """Empty all databases and load the append-only file."""
    session.engine.tracking.invalidate_all()
    session.engine.services.load_log()
    session.out.ok()


@action("config-rewrite-force-all", 2)
def _config_rewrite_force_all(session: Session, argv: list[bytes]) -> None:
    """Write all settings to the configuration file, including defaults."""
    rewrite_config(session, True)


@action("change-repl-id", 2)
def _change_repl_id(session: Session, argv: list[bytes]) -> None:
    """Change the replication ID."""
    session.engine.replication.id = new_id()
    session.engine.replication.forget_second()
    session.out.ok()


# -- protocol ---------------------------------------------------------------------------------------


@action("error", 3, usage="<string>")
def _error(session: Session, argv: list[bytes]) -> None:
    """Reply with the given error."""
    session.out.error(argv[2])


@action("protocol", 3, usage="<type>")
def _protocol(session: Session, argv: list[bytes]) -> None:
    """Reply with a sample of a RESP type."""
    sample = _SAMPLES.get(argv[2].lower())
    if sample is None:
        raise CommandError(
            "Wrong protocol type name. Please use one of the following: "
            "string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false"
        )
    sample(session.out)


def _map_sample(out: ReplyWriter) -> None:
    out.map(3)
    for number in range(3):
        out.integer(number)
        out.boolean(number == 1)


def _attribute_sample(out: ReplyWriter) -> None:
    if out.resp == 3:
        out.attribute(1)
        out.bulk(b"key-popularity")
        write_tree(out, [b"key:123", 90])
    out.bulk(b"Some real reply following the attribute")


def _push_sample(out: ReplyWriter) -> None:
    if out.resp == 2:
        raise CommandError("RESP2 is not supported by this command")
    out.push(2)
    out.bulk(b"server-cpu-usage")
    out.integer(42)
    out.bulk(b"Some real reply following the push reply")


_SAMPLES: dict[bytes, Callable[[Any], Any]] = {
    b"string": lambda out: out.bulk(b"Hello World"),
    b"integer": lambda out: out.integer(12345),
    b"double": lambda out: out.double(3.141),
    b"bignum": lambda out: out.bignum(b"1234567999999999999999999999999999999"),
    b"null": lambda out: out.null(),
    b"array": lambda out: write_tree(out, [0, 1, 2]),
    b"set": lambda out: write_tree(out, ReplySet((0, 1, 2))),
    b"map": _map_sample,
    b"attrib": _attribute_sample,
    b"push": _push_sample,
    b"verbatim": lambda out: out.verbatim(b"This is a verbatim\nstring"),
    b"true": lambda out: out.boolean(True),
    b"false": lambda out: out.boolean(False),
}
