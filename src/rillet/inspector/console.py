"""Console: one command at a time, with its reply as a tree. Reads only, unless the inspector may write.

Which commands read is the server's own statement: the flag `readonly` of COMMAND INFO. A few commands without a key
are allowed beside them (PING, INFO, SLOWLOG GET). Not allowed: commands that keep the connection (MONITOR, SUBSCRIBE),
scripts (they may run for minutes), BLOCK (it would occupy a thread), and KEYS on a server with many keys, for which the
search does the same in small steps.
"""

from __future__ import annotations

from typing import Any, Protocol

from rillet.errors import CommandError
from rillet.inspector.place import InspectedPlace
from rillet.inspector.text import shown
from rillet.store.arguments.encoding import decode
from rillet.store.entry import pairs_in
from rillet.store.store import Store

_HARMLESS = frozenset("""
    acl|cat acl|getuser acl|list acl|log acl|users acl|whoami client|getname client|id client|info client|list
    client|trackinginfo cluster|countkeysinslot cluster|info cluster|keyslot cluster|links cluster|myid cluster|nodes
    cluster|shards cluster|slots command config|get dbsize echo function|list function|stats info lastsave
    latency|doctor latency|graph latency|histogram latency|history latency|latest lolwut memory|doctor
    memory|malloc-stats memory|stats memory|usage module|list object|encoding object|freq object|idletime
    object|refcount ping pubsub|channels pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub role
    script|exists slowlog|get slowlog|len time xinfo|consumers xinfo|groups xinfo|stream
""".split())
_HARMLESS_CONTAINERS = frozenset(("command",))
# Commands whose state or replies belong to a connection, which the console shares with other requests.
_NEVER = frozenset("""
    asking auth discard exec hello monitor multi psubscribe psync punsubscribe quit readonly readwrite replconf reset
    select shutdown ssubscribe subscribe sunsubscribe sync unsubscribe unwatch wait waitaof watch
""".split())
_SCRIPTS = frozenset(("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"))
_BLOCKING = frozenset(("blpop", "brpop", "blmove", "brpoplpush", "blmpop", "bzpopmin", "bzpopmax", "bzmpop"))
_MANY_KEYS = 100_000
_ITEMS, _DEPTH, _TEXT = 1000, 12, 4000


class Refused(Exception):
    """The console does not run this command."""


def split_words(line: str) -> list[bytes]:
    r"""Return the words of a command line, as redis-cli reads it: "..." with \n and \xff, and '...'. ValueError."""
    words: list[bytes] = []
    at = 0
    while True:
        while at < len(line) and line[at].isspace():
            at += 1
        if at >= len(line):
            return words
        word, at = _word_at(line, at)
        words.append(word)


_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "b": b"\b", "a": b"\a"}


def _word_at(line: str, at: int) -> tuple[bytes, int]:
    out = bytearray()
    quote = ""
    while at < len(line):
        one = line[at]
        if quote == '"' and one == "\\" and at + 1 < len(line):
            digits = line[at + 2 : at + 4]
            if line[at + 1] == "x" and len(digits) == 2 and all(c in "0123456789abcdefABCDEF" for c in digits):
                out.append(int(digits, 16))
                at += 4
            else:
                out += _ESCAPES.get(line[at + 1], line[at + 1].encode("utf-8", "surrogatepass"))
                at += 2
            continue
        if quote == "'" and one == "\\" and line[at + 1 : at + 2] == "'":
            out += b"'"
            at += 2
            continue
        if quote and one == quote:
            if at + 1 < len(line) and not line[at + 1].isspace():
                raise ValueError("a closing quote must be followed by a space")
            return bytes(out), at + 1
        if not quote and one in "\"'" and not out:
            quote = one
        elif not quote and one.isspace():
            return bytes(out), at
        else:
            out += one.encode("utf-8", "surrogatepass")
        at += 1
    if quote:
        raise ValueError(f"a closing {quote} is missing")
    return bytes(out), at


def join_words(argv: list[bytes]) -> str:
    """Return the command line of words; `split_words` returns the same words."""
    return " ".join(_quoted(word) for word in argv)


def _quoted(word: bytes) -> str:
    text = word.decode("utf-8", "surrogateescape")
    if text and text.isprintable() and not any(one in text for one in " \"'\\"):
        return text
    out = []
    for one in text:
        if one in '"\\':
            out.append("\\" + one)
        elif one.isprintable():
            out.append(one)
        else:
            out += [f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogateescape")]
    return '"' + "".join(out) + '"'


def reply_tree(reply: Any, depth: int = 0) -> dict[str, Any]:
    """Return a reply for JSON: its type, its value or items; long and deep ones are cut."""
    if isinstance(reply, CommandError):
        return {"type": "error", "value": shown(str(reply).encode("utf-8", "surrogateescape"), _TEXT)[0]}
    if reply is None:
        return {"type": "null"}
    if isinstance(reply, bool):
        return {"type": "boolean", "value": str(reply).lower()}
    if isinstance(reply, int):
        return {"type": "integer", "value": str(reply)}
    if isinstance(reply, float):
        return {"type": "double", "value": repr(reply)}
    if isinstance(reply, (bytes, str)):
        raw = reply if isinstance(reply, bytes) else reply.encode("utf-8", "surrogateescape")
        text, cut = shown(raw, _TEXT)
        found: dict[str, Any] = {"type": "string", "value": text, "size": len(raw)}
        if b"\n" in raw and not cut:
            found["lines"] = [shown(line, _TEXT)[0] for line in raw.splitlines()[:_ITEMS]]
        return {**found, "cut": True} if cut else found
    if depth >= _DEPTH:
        return {"type": "cut", "value": "deeper"}
    if isinstance(reply, dict):
        pairs = [[reply_tree(key, depth + 1), reply_tree(value, depth + 1)] for key, value in reply.items()]
        return {"type": "map", "pairs": pairs[:_ITEMS], "size": len(pairs)}
    items = list(reply)
    kind = "set" if isinstance(reply, (set, frozenset)) else "array"
    return {"type": kind, "items": [reply_tree(one, depth + 1) for one in items[:_ITEMS]], "size": len(items)}


def run_line(place: InspectedPlace, store: Store, line: str) -> dict[str, Any]:
    """Run a command line and return its reply as a tree; Refused, ValueError."""
    argv = split_words(line)
    if not argv:
        raise ValueError("the command is empty")
    writes = check(place, store, argv)
    if writes:
        raise Refused("this command writes: confirm it")
    return _run(store, argv)


def run_confirmed(place: InspectedPlace, store: Store, line: str, confirm: str) -> dict[str, Any]:
    """Run a command that writes, after the user confirmed exactly this line."""
    place.allow_write()
    argv = split_words(line)
    check(place, store, argv)
    if confirm != join_words(argv):
        raise Refused("the confirmation is of another command")
    return _run(store, argv)


def _run(store: Store, argv: list[bytes]) -> dict[str, Any]:
    try:
        return reply_tree(store.run(argv))
    except CommandError as error:
        return reply_tree(error)


def check(place: InspectedPlace, store: Store, argv: list[bytes]) -> bool:
    """Return whether the command writes; Refused if the console does not run it."""
    name = decode(argv[0]).lower()
    if name in _NEVER:
        raise Refused(f"{name.upper()} changes or occupies the connection, which the console shares")
    if name in _BLOCKING or (name in ("xread", "xreadgroup") and any(word.lower() == b"block" for word in argv)):
        raise Refused("commands that wait are not allowed here: the stream view has a live tail")
    full = f"{name}|{decode(argv[1]).lower()}" if len(argv) > 1 else name
    if name in _HARMLESS or full in _HARMLESS or (len(argv) > 1 and argv[1].lower() == b"help"):
        return False
    if name in _HARMLESS_CONTAINERS:
        return False
    facts = _info(store, full) or _info(store, name)
    if facts is None:
        raise Refused(f"{place.server} has no command {name!r}")
    flags = {decode(flag) if isinstance(flag, bytes) else str(flag) for flag in facts[2]}
    if name == "keys" and int(store.execute("DBSIZE")) > _MANY_KEYS:
        raise Refused(f"KEYS would stop the server for more than {_MANY_KEYS} keys: use the search")
    if "readonly" in flags and name not in _SCRIPTS:
        return False
    if not place.write:
        raise Refused(f"{name.upper()} is not a read: start the inspector with --write to run it")
    return True


def is_dangerous(store: Store, argv: list[bytes]) -> bool:
    """Return whether the server has a command in its category @dangerous, as FLUSHALL: its name must be typed again."""
    name = decode(argv[0]).lower()
    facts = _info(store, f"{name}|{decode(argv[1]).lower()}" if len(argv) > 1 else name) or _info(store, name)
    categories = facts[6] if facts is not None and len(facts) > 6 else ()
    return b"@dangerous" in {one if isinstance(one, bytes) else str(one).encode() for one in categories}


def _info(store: Store, name: str) -> Any:
    try:
        found = store.execute("COMMAND", "INFO", name)
    except CommandError:
        return None
    return found[0] if found else None


class Executes(Protocol):
    """What runs commands, such as a Store."""

    def execute(self, *args: str) -> Any:
        """Run a command and return its reply; CommandError."""


def command_table(store: Executes) -> list[dict[str, Any]]:
    """Return the server's commands with summary, arguments and flags, sorted by name, for completion and help."""
    table: dict[str, dict[str, Any]] = {}
    for row in store.execute("COMMAND"):
        _add_row(table, row)
    try:
        docs = store.execute("COMMAND", "DOCS")
    except CommandError:  # before Redis 7.0
        docs = []
    for name, facts in pairs_in(docs):
        _add_docs(table, decode(name), _dict(facts))
    return [table[name] for name in sorted(table)]


def _add_row(table: dict[str, dict[str, Any]], row: Any) -> None:
    name = decode(row[0]).replace("|", " ").lower()
    flags = sorted(decode(flag) if isinstance(flag, bytes) else str(flag) for flag in row[2])
    table[name] = {"name": name, "arity": row[1], "flags": flags, "summary": "", "usage": "", "group": "", "since": "",
                   "complexity": "", "reads": "readonly" in flags or name.replace(" ", "|") in _HARMLESS}  # fmt: skip
    for inner in row[9] if len(row) > 9 else ():
        _add_row(table, inner)


def _add_docs(table: dict[str, dict[str, Any]], name: str, facts: dict[str, Any]) -> None:
    name = name.replace("|", " ").lower()
    found = table.get(name)
    if found is not None:
        for part in ("summary", "group", "since", "complexity"):
            found[part] = _text_of(facts.get(part))
        found["usage"] = " ".join(_usage(_dict(one)) for one in facts.get("arguments") or ())
    for sub, about in pairs_in(facts.get("subcommands") or ()):
        _add_docs(table, decode(sub), _dict(about))


def _dict(flat: Any) -> dict[str, Any]:
    return {decode(name): value for name, value in pairs_in(flat)}


def _text_of(value: Any) -> str:
    return decode(value) if isinstance(value, bytes) else ""


def _usage(argument: dict[str, Any]) -> str:
    """Return an argument in the notation of redis-cli's hints."""
    kind = _text_of(argument.get("type"))
    token = _text_of(argument.get("token"))
    inner = [_usage(_dict(one)) for one in argument.get("arguments") or ()]
    if kind == "pure-token":
        text = token
    elif kind == "oneof":
        text = f"<{' | '.join(inner)}>"
    elif kind == "block":
        text = " ".join(inner)
    else:
        text = _text_of(argument.get("display_text")) or _text_of(argument.get("name"))
    if token and kind != "pure-token":
        text = f"{token} {text}"
    flags = {decode(flag) if isinstance(flag, bytes) else str(flag) for flag in argument.get("flags") or ()}
    if "multiple" in flags:
        text = f"{text} [{text} ...]"
    return f"[{text}]" if "optional" in flags else text
