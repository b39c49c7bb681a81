"""JSON documents: the commands JSON.* of RedisJSON, with its format in RDB files.

    JSON.SET doc $ '{"a": [1, 2]}'     JSON.GET doc $.a[0]   ->  [1]       a path of JSONPath: an array of all matches
                                       JSON.GET doc .a[0]    ->  1         a legacy path: the first match, or an error

A document is a tree of Python's dicts, lists and scalars. A static path (`$.a[0]["b"]`) is evaluated here; all others
(`$..a`, `$.a[?@.x > 1]`, `$.a[1:3]`) are evaluated by python-jsonpath (RFC 9535), which `pip install rillet[json]`
installs. Without the package, such a path is an error that names it.

In RDB files a document is its compact text, with the name and version of RedisJSON's type, so that documents load in
both directions. Numbers are shown as RedisJSON shows them: 1.0 stays 1.0, an integer beyond 64 bits becomes a float.

Costs: O(document) for JSON.SET of the root and JSON.GET, O(path) for a static path.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from rillet.commands.arguments import arity_error, syntax_error
from rillet.errors import CommandError, WrongType
from rillet.modules import NULL_ARRAY, Context, KeyPlace, Module, ModuleReader, ModuleType, ModuleWriter

module = Module("ReJSON", 1)

_DEPTH = 128  # of nested containers
_STEP = re.compile(
    r"""\.?\[\s*(?:(-?\d+)|'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")\s*\]"""
    r"""|\.([A-Za-z_$\u0080-\U0010ffff][\w$\-\u0080-\U0010ffff]*)"""
)
_NO_KEY = "could not perform this operation on a key that doesn't exist"
_FLOAT = re.compile(r"(-?)(\d)(?:\.(\d+))?e([+-]\d+)")
_LIMITS = (-(1 << 63), (1 << 64) - 1)  # RedisJSON keeps integers of this range exactly

Place_ = tuple[Any, ...]


class Document:
    """A document. `size` is the number of bytes of its text, as far as it is known."""

    __slots__ = ("root", "size")

    def __init__(self, root: Any, size: int) -> None:
        self.root = root
        self.size = size


# -- text ---------------------------------------------------------------------------------------------


def _constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _whole(text: str) -> int | float:
    value = int(text) if len(text) < 25 else float(text)
    return value if _LIMITS[0] <= value <= _LIMITS[1] else float(value)


def decoded(raw: bytes) -> Any:
    """Return the value of a JSON text; CommandError if it is malformed or nested too deep."""
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_constant, parse_int=_whole)
        _check_depth(value, 0)
        dumped(value).encode("utf-8")
    except (ValueError, RecursionError) as error:
        raise CommandError(f"invalid JSON: {str(error).splitlines()[0]}") from None
    return value


def _check_depth(value: Any, depth: int) -> None:
    if depth > _DEPTH:
        raise ValueError("recursion limit exceeded")
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            _check_depth(one, depth + 1)


def _float_text(value: float) -> str:
    """Return a float as Rust's ryu shows it, which RedisJSON uses: 1e16 and 1e-7 instead of 1e+16 and 1e-07."""
    text = repr(value)
    found = _FLOAT.fullmatch(text)
    if found is None:
        return _expand(text) if len(text.lstrip("-").partition(".")[0]) > 16 else text
    sign, first, rest, exponent = found[1], found[2], found[3] or "", int(found[4])
    if exponent == -5:
        return f"{sign}0.0000{first}{rest}"
    return f"{sign}{first}{'.' + rest if rest else ''}e{exponent}"


def _expand(text: str) -> str:
    """Return a float with 17 digits before the point with an exponent."""
    digits = text.lstrip("-").partition(".")[0]
    rest = digits[1:].rstrip("0")
    return f"{'-' if text.startswith('-') else ''}{digits[0]}{'.' + rest if rest else ''}e{len(digits) - 1}"


def dumped(value: Any, indent: str = "", newline: str = "", space: str = "", depth: int = 0) -> str:
    """Return a value as JSON, compact or with the layout of JSON.GET. O(size)"""
    if isinstance(value, float):
        return _float_text(value)
    if not isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if not value:
        return "{}" if isinstance(value, dict) else "[]"
    inner = newline + indent * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(name, ensure_ascii=False)}:{space}{dumped(one, indent, newline, space, depth + 1)}"
                 for name, one in value.items()]  # fmt: skip
    else:
        parts = [dumped(one, indent, newline, space, depth + 1) for one in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return f"{opening}{inner}{f',{inner}'.join(parts)}{newline}{indent * depth}{closing}"


# -- paths --------------------------------------------------------------------------------------------


class Path:
    """A path of a command. legacy: one value is replied instead of an array; steps: None if the path is not static."""

    __slots__ = ("legacy", "shown", "steps", "text")

    def __init__(self, raw: bytes) -> None:
        try:
            self.shown = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise CommandError("the path is not UTF-8") from None
        text = self.shown
        self.legacy = not (text == "$" or text.startswith(("$.", "$[")))
        if self.legacy:
            text = "$" if text == "." else f"${text}" if text.startswith((".", "[")) else f"$.{text}"
        self.text = text
        self.steps = _static(text)

    @property
    def is_root(self) -> bool:
        """Whether the path is that of the whole document."""
        return self.steps == ()

    def find(self, root: Any) -> list[tuple[Place_, Any]]:
        """Return the places and values that match, in the order of the document."""
        if self.steps is not None:
            value = root
            place: list[Any] = []
            for step in self.steps:
                if isinstance(value, dict) and isinstance(step, str) and step in value:
                    place.append(step)
                elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
                    place.append(step % len(value))
                else:
                    return []
                value = value[place[-1]]
            return [(tuple(place), value)]
        return [(tuple(match.parts), match.obj) for match in _compiled(self.text).finditer(root)]

    def error(self, or_else: str = "") -> CommandError:
        """Return the error for a legacy path without a match."""
        return CommandError(f"Path '{self.text}' does not exist{f' or {or_else}' if or_else else ''}")


def _static(text: str) -> tuple[Any, ...] | None:
    """Return the keys and indexes of a static path, None if it is another one."""
    steps: list[Any] = []
    at = 1
    while at < len(text):
        found = _STEP.match(text, at)
        if found is None:
            return None
        index, single, double, name = found.groups()
        if index is not None:
            steps.append(int(index))
        elif name is not None:
            steps.append(name)
        else:
            quoted = single if single is not None else double
            steps.append(re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    return tuple(steps)


@lru_cache(maxsize=256)
def _compiled(text: str) -> Any:
    """Return a compiled path; CommandError if it is invalid, or if python-jsonpath is not installed."""
    try:
        import jsonpath
    except ModuleNotFoundError:
        raise CommandError(
            f"the path '{text}' needs the package python-jsonpath: pip install rillet[json]"
        ) from None
    try:
        return jsonpath.compile(text.replace(".[", "[").replace("..[", "..["))
    except Exception as error:
        raise CommandError(f"invalid path '{text}': {str(error).strip().splitlines()[0]}") from None


def _at(root: Any, place: Place_) -> Any:
    for step in place:
        root = root[step]
    return root


def _without_nested(found: list[Place_]) -> list[Place_]:
    """Return places without those inside others, the last elements of an array first: deletions move no others."""
    kept: list[Place_] = []
    chosen: set[Place_] = set()
    for place in sorted(set(found), key=len):
        if not any(place[:size] in chosen for size in range(len(place))):
            chosen.add(place)
            kept.append(place)
    return sorted(kept, key=_order, reverse=True)


def _order(place: Place_) -> list[tuple[int, str]]:
    """Return a key that sorts places; an index comes before a name."""
    return [(step, "") if isinstance(step, int) else (-1, step) for step in place]


# -- the type -----------------------------------------------------------------------------------------


@module.type
class JsonType(ModuleType):
    """RedisJSON's type."""

    name = "ReJSON-RL"
    encoding_version = 3

    def rdb_save(self, out: ModuleWriter, value: Document) -> None:
        """Write the compact text."""
        out.string(dumped(value.root).encode())

    def rdb_load(self, source: ModuleReader, version: int) -> Document | None:
        """Read the text; version 2 has names of indexes after it."""
        if version not in (2, 3):
            return None
        raw = source.string()
        if version == 2 and source.unsigned():
            source.string()
            source.string()
        return Document(decoded(raw), len(raw))

    def copy(self, source: KeyPlace, target: KeyPlace, value: Document) -> Document:
        """Return a copy."""
        return Document(json.loads(dumped(value.root)), value.size)

    def mem_usage(self, value: Document, samples: int) -> int:
        """Return an estimate: Python's objects need about six times the text."""
        return 64 + 6 * value.size

    def free_effort(self, place: KeyPlace, value: Document) -> int:
        """Return the number of elements of the root."""
        return len(value.root) if isinstance(value.root, dict | list) else 1


def _read(context: Context, argv: list[bytes], command: str) -> tuple[Path, Document | None]:
    """Return the path and the document of a command that has an optional path after the key."""
    if len(argv) > 3:
        raise arity_error(command)
    return Path(argv[2] if len(argv) == 3 else b"."), _document(context, argv[1])


def _document(context: Context, name: bytes) -> Document | None:
    found: Document | None = context.key(name).get(JsonType)
    return found


def _existing(context: Context, name: bytes) -> Document:
    found = _document(context, name)
    if found is None:
        raise CommandError(_NO_KEY)
    return found


def _changed(context: Context, name: bytes, event: str) -> None:
    """Report a change: to watchers, to listeners of events, to the log."""
    context.key(name).changed()
    context.notify("d", event, name)
    context.replicate_verbatim()


# -- commands -----------------------------------------------------------------------------------------


@module.command("json.set", arity=-4, flags="write denyoom", keys=(1, 1, 1), categories="write",
                complexity="O(M+N) for M bytes of the former and N of the new value",
                syntax="key path value [NX | XX]")  # fmt: skip
def set_(context: Context, argv: list[bytes]) -> Any:
    """Sets the values at a path of a document."""
    path, condition, at = Path(argv[2]), b"", 4
    while at < len(argv):
        word = argv[at].upper()
        if word in (b"NX", b"XX") and not condition:
            condition = word
        elif word == b"FORMAT" and at + 1 < len(argv) and argv[at + 1].upper() in (b"STRING", b"JSON"):
            at += 1
        else:
            raise syntax_error()
        at += 1
    value = decoded(argv[3])
    document = _document(context, argv[1])
    if path.is_root:
        if condition == (b"NX" if document is not None else b"XX"):
            return None
        if document is None:
            context.key(argv[1]).set(JsonType, Document(value, len(argv[3])))
        else:
            document.root, document.size = value, len(argv[3])
    elif document is None:
        raise CommandError("new objects must be created at the root")
    elif not _set_at(document, path, argv[3], value, condition):
        return None
    _changed(context, argv[1], "json.set")
    return "OK"


def _set_at(document: Document, path: Path, text: bytes, value: Any, condition: bytes) -> bool:
    """Set the values at a path, or add a member; return whether anything was set."""
    found = path.find(document.root)
    if found:
        if condition == b"NX":
            return False
        places = [place for place, _ in found]
        for place in _without_nested(places):
            _assign(document, place, value if len(places) == 1 else decoded(text))
        document.size += len(text) * len(places)
        return True
    if path.steps is None:
        raise CommandError("Err wrong static path")
    *parents, last = path.steps
    parent = Path(b"$")
    parent.steps = tuple(parents)
    above = parent.find(document.root)
    if condition == b"XX" or not above:
        return False
    if isinstance(last, int):
        raise CommandError("array index out of range" if isinstance(above[0][1], list) else "path not an object")
    if not isinstance(above[0][1], dict):
        return False
    above[0][1][last] = value
    document.size += len(text) + len(last) + 4
    return True


def _assign(document: Document, place: Place_, value: Any) -> None:
    if place:
        _at(document.root, place[:-1])[place[-1]] = value
    else:
        document.root = value


@module.command("json.get", arity=-2, flags="readonly", keys=(1, 1, 1), access="RO access", categories="read",
                complexity="O(N) for N bytes",
                syntax="key [INDENT indent] [NEWLINE newline] [SPACE space] [path [path ...]]")  # fmt: skip
def get(context: Context, argv: list[bytes]) -> Any:
    """Returns the values at paths of a document, as JSON."""
    layout: dict[str, Any] = {"indent": "", "newline": "", "space": ""}
    paths: list[Path] = []
    at = 2
    while at < len(argv):
        word = argv[at].upper()
        if word in (b"INDENT", b"NEWLINE", b"SPACE"):
            if at + 1 == len(argv):
                raise arity_error("json.get")
            layout[word.decode().lower()] = argv[at + 1].decode("utf-8", "replace")
            at += 1
        elif word != b"NOESCAPE":
            paths.append(Path(argv[at]))
        at += 1
    document = _document(context, argv[1])
    if document is None:
        return None
    paths = paths or [Path(b".")]
    single = all(path.legacy for path in paths)
    values = {path.shown: _values(document, path, single) for path in paths}
    return dumped(values if len(paths) > 1 else values[paths[0].shown], **layout).encode()


def _values(document: Document, path: Path, single: bool) -> Any:
    """Return the value of a legacy path, or the list of all matches."""
    found = [value for _, value in path.find(document.root)]
    if not single:
        return found
    if not found:
        raise path.error()
    return found[0]


@module.command("json.mget", arity=-3, flags="readonly", keys=(1, -2, 1), access="RO access", categories="read",
                complexity="O(M*N) for M keys and N bytes", syntax="key [key ...] path")  # fmt: skip
def mget(context: Context, argv: list[bytes]) -> list[Any]:
    """Returns the values at a path of several documents, as JSON."""
    path = Path(argv[-1])
    return [_one_of_many(context, name, path) for name in argv[1:-1]]


def _one_of_many(context: Context, name: bytes, path: Path) -> bytes | None:
    try:
        document = _document(context, name)
    except WrongType:
        return None
    if document is None:
        return None
    found = [value for _, value in path.find(document.root)]
    if path.legacy:
        return dumped(found[0]).encode() if found else None
    return dumped(found).encode()


def delete(context: Context, argv: list[bytes]) -> int:
    """Deletes the values at a path of a document; without a path, the document."""
    path, document = _read(context, argv, "json.del")
    if document is None:
        return 0
    count = 1
    if not path.is_root:
        places = _without_nested([place for place, _ in path.find(document.root)])
        count = len(places)
        for place in places:
            parent = _at(document.root, place[:-1])
            document.size = max(document.size - len(dumped(parent[place[-1]])), 0)
            del parent[place[-1]]
    if not count:
        return 0
    if path.is_root or document.root in ({}, []):
        context.key(argv[1]).delete()
        context.notify("d", "json.del", argv[1])
        context.replicate_verbatim()
    else:
        _changed(context, argv[1], "json.del")
    return count


for _name in ("json.del", "json.forget"):
    module.command(_name, arity=-2, flags="write", keys=(1, 1, 1), categories="write", complexity="O(N) for N elements",
                   syntax="key [path]")(delete)  # fmt: skip


_NAMES: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer",
                           float: "number", type(None): "null"}  # fmt: skip


@module.command("json.type", arity=-2, flags="readonly", keys=(1, 1, 1), access="RO access", categories="read",
                complexity="O(1) for a static path", syntax="key [path]")  # fmt: skip
def type_(context: Context, argv: list[bytes]) -> Any:
    """Returns the type of the values at a path of a document."""
    path, document = _read(context, argv, "json.type")
    found: Any = None
    if document is not None:
        names = [_NAMES[type(value)].encode() for _, value in path.find(document.root)]
        found = (names[0] if names else None) if path.legacy else names
    return [found] if context.out.resp == 3 else found


@module.command("json.numincrby", arity=4, flags="write denyoom", keys=(1, 1, 1), categories="write",
                complexity="O(1) for a static path", syntax="key path value")  # fmt: skip
def numincrby(context: Context, argv: list[bytes]) -> Any:
    """Adds a number to the numbers at a path of a document."""
    path, by = Path(argv[2]), decoded(argv[3])
    if not _is_number(by):
        raise CommandError("expected a number")
    document = _existing(context, argv[1])
    found = path.find(document.root)
    sums = [_sum(value, by) if _is_number(value) else None for _, value in found]
    if path.legacy and all(one is None for one in sums):
        raise path.error("does not contains a number")
    for (place, _), one in zip(found, sums, strict=True):
        if one is not None:
            _assign(document, place, one)
    if any(one is not None for one in sums):
        _changed(context, argv[1], "json.numincrby")
    if context.out.resp == 3:
        return sums
    if path.legacy:
        return dumped([one for one in sums if one is not None][-1]).encode()
    return dumped(sums).encode()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _sum(value: int | float, by: int | float) -> int | float:
    """Return the sum; CommandError if it is not finite."""
    total = value + by
    if isinstance(total, int) and not -(1 << 63) <= total < 1 << 63:
        total = float(total)
    if isinstance(total, float) and total - total != 0:
        raise CommandError("result is not a number")
    return total


@module.command("json.arrappend", arity=-4, flags="write denyoom", keys=(1, 1, 1), categories="write",
                complexity="O(1) for a value and a static path", syntax="key path value [value ...]")  # fmt: skip
def arrappend(context: Context, argv: list[bytes]) -> Any:
    """Appends values to the arrays at a path of a document."""
    path = Path(argv[2])
    for text in argv[3:]:
        decoded(text)
    document = _existing(context, argv[1])
    lengths: list[int | None] = []
    for _, value in path.find(document.root):
        if not isinstance(value, list):
            lengths.append(None)
            continue
        value.extend(decoded(text) for text in argv[3:])
        document.size += sum(len(text) + 1 for text in argv[3:])
        lengths.append(len(value))
    changed = [length for length in lengths if length is not None]
    if path.legacy and not changed:
        raise path.error("not an array")
    if changed:
        _changed(context, argv[1], "json.arrappend")
    return changed[-1] if path.legacy else lengths


@module.command("json.arrlen", arity=-2, flags="readonly", keys=(1, 1, 1), access="RO access", categories="read",
                complexity="O(1) for a static path", syntax="key [path]")  # fmt: skip
def arrlen(context: Context, argv: list[bytes]) -> Any:
    """Returns the lengths of the arrays at a path of a document."""
    path, document = _read(context, argv, "json.arrlen")
    if document is None:
        if path.legacy:
            return None
        raise CommandError(_NO_KEY)
    lengths = [len(value) if isinstance(value, list) else None for _, value in path.find(document.root)]
    if not path.legacy:
        return lengths
    if not lengths or lengths[0] is None:
        raise path.error("not an array")
    return lengths[0]


@module.command("json.objkeys", arity=-2, flags="readonly", keys=(1, 1, 1), access="RO access", categories="read",
                complexity="O(N) for N keys and a static path", syntax="key [path]")  # fmt: skip
def objkeys(context: Context, argv: list[bytes]) -> Any:
    """Returns the names in the objects at a path of a document."""
    path, document = _read(context, argv, "json.objkeys")
    if document is None:
        if path.legacy:
            return NULL_ARRAY
        raise CommandError(_NO_KEY)
    found = [value for _, value in path.find(document.root)]
    if path.legacy:
        if not found:
            return NULL_ARRAY
        if not isinstance(found[0], dict):
            name = _NAMES[type(found[0])]
            raise WrongType(f"wrong type of path value - expected object but found {name}")
        return [name.encode() for name in found[0]]
    return [[name.encode() for name in value] if isinstance(value, dict) else NULL_ARRAY for value in found]
