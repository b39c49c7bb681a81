"""The pages that map names of Redis's source to rillet's: each rillet name exists, and each C name is in Redis.

A row of these pages names functions, classes and attributes, then the file that has them:

    | `streamAppendItem` | `Stream.add`, `append`, `types/stream/stream.py`; `append_entry`, `types/stream/node.py` |

`append` is short for `Stream.append`. Without a file, those of the section's line "Names without a file" count.
† marks what the compiled build has as C only. The test derives it from the source, and in the compiled build it also
looks for the attributes.

The names of Redis are compared with its source tree, which RILLET_SUITE_7_0 names.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rillet._compiled import TYPED
from tests.package.test_modes import ROOT, SRC
from tests.variants import COMPILED

pytestmark = pytest.mark.both

PAGES = tuple(ROOT / "docs" / name for name in ("glossary.md", "redis-source.md", "zh/redis-source.md"))
REDIS = Path(os.environ.get("RILLET_SUITE_7_0", ""), "src")
HEADERS = ("stream.h", "listpack.h", "rax.h", "quicklist.h", "intset.h", "dict.h", "sds.h")
ONLY_IN_OTHERS = {
    # 6.2 and before
    "dictht", "sizemask", "zlbytes", "zllen", "zltail", "hashTypeConvertZiplist", "zsetConvertToZiplistIfNeeded",
    "OBJ_HASH_MAX_ZIPLIST_ENTRIES",
    # 7.2 and later
    "quicklistNodeNegFillLimit", "quicklistNodeExceedsLimit", "updateLRM", "keyModified",
}  # fmt: skip
"""C names of the pages that Redis 7.0.15 does not have."""
NOT_MAPPED = {"sds_malloc", "sds_realloc", "sds_free", "quicklistTest", "dictTest", "sdsTest"}
"""Functions of the headers that no page needs: allocation, and tests that are compiled into Redis."""

HEAP_TYPE = 1 << 9
"""The flag of a class that Python code has made (Py_TPFLAGS_HEAPTYPE)."""

_TOKEN = re.compile(r"`([^`]+)`(†?)([:：]?)|([;；])")
_NAME = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\))?")
_WORD = re.compile(r"[A-Za-z_]\w+")
_DEFAULT = re.compile(
    r"(?:Names without a file are in|没有写文件的名字在) ?(`[\w/]+\.py`(?:(?:, | and |、|和)`[\w/]+\.py`)*)"
)


class Name(NamedTuple):
    """A name of a row, the files that may have it, the class that a short name may belong to, whether it has a †."""

    files: tuple[str, ...]
    name: str
    owner: str
    marked: bool


def rows(page: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the Redis cell and the rillet cell of each row, and the files of its section."""
    default: tuple[str, ...] = ()
    columns: list[str] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            default = ()
        if found := _DEFAULT.search(line):
            default = tuple(re.findall("`([^`]+)`", found[1]))
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")] if line.startswith("| ") else []
        if "rillet" in cells and "Redis" in cells:
            columns = cells
        elif cells and columns:
            yield cells[columns.index("Redis")], cells[columns.index("rillet")], default
        elif not line.startswith("|"):
            columns = []


def names(cell: str, default: tuple[str, ...]) -> Iterator[Name]:
    """Yield the names of a rillet cell."""
    pending: list[tuple[str, bool]] = []
    current: tuple[str, ...] = ()
    owner = ""

    def flush(files: tuple[str, ...]) -> Iterator[Name]:
        nonlocal owner
        for name, marked in pending:
            yield Name(files, name, owner, marked)
            head, _, _ = name.rpartition(".")
            if head or re.match("_*[A-Z][a-z]", name):
                owner = head or name
        pending.clear()

    for match in _TOKEN.finditer(cell):
        text, marked, colon, semicolon = match.groups()
        if semicolon:
            if current or default:
                yield from flush(current or default)
            current = ()
        elif text.endswith(".py"):
            if pending:
                yield from flush((text,))
            elif colon:
                current = (text,)
            else:
                yield Name((text,), "", "", False)
        elif name := _NAME.fullmatch(text):
            pending.append((name[1], bool(marked)))
    yield from flush(current or default)


class Outline(NamedTuple):
    """What a file defines: its names, and the attributes of its classes, each with whether it becomes C only."""

    names: dict[str, bool]
    classes: dict[str, dict[str, bool]]


@cache
def outline(file: str) -> Outline:
    """Return the outline of a source file: a C function, a field and a C variable of a typed module are C only."""
    typed = file.removesuffix(".py") in TYPED
    found = Outline({}, {})
    for node in ast.parse((SRC / file).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.names[node.name] = typed and isinstance(node, ast.FunctionDef) and _decorated(node, "cfunc")
        if isinstance(node, ast.ClassDef):
            found.classes[node.name] = dict(_attributes(node, typed and _decorated(node, "cclass")))
        for target in _targets(node):
            for part in ast.walk(target):
                if isinstance(part, ast.Name) and isinstance(node, (ast.Assign, ast.AnnAssign)):
                    declared = typed and isinstance(node.value, ast.Call) and "declare" in ast.unparse(node.value.func)
                    found.names[part.id] = declared
    return found


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def _decorated(node: ast.FunctionDef | ast.ClassDef, name: str) -> bool:
    return any(ast.unparse(one).split("(")[0] == f"cython.{name}" for one in node.decorator_list)


def _attributes(owner: ast.ClassDef, is_c: bool) -> Iterator[tuple[str, bool]]:
    """Yield what the methods of a class set on `self`, then what its body declares."""
    for part in ast.walk(owner):
        for target in _targets(part):
            for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self":
                    yield one.attr, False
    for node in owner.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, is_c and _decorated(node, "cfunc")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            visible = ast.unparse(node.annotation).split("[")[0] in ("public", "readonly")
            yield node.target.id, is_c and not visible
        elif isinstance(node, ast.Assign):
            yield from ((one.id, False) for one in node.targets if isinstance(one, ast.Name))


def _of_class(kind: type, name: str) -> bool | None:
    """Return whether an attribute of a class is C only; None if the class does not have it."""
    home = kind.__module__.removeprefix("rillet.").replace(".", "/") + ".py"
    if not (SRC / home).is_file():
        return None
    return outline(home).classes.get(kind.__name__, {}).get(name)


def problem(name: Name) -> str:
    """Return what is wrong with a name; "" if nothing is."""
    if not name.files:
        return "no file"
    found = [_problem_in(file, name) for file in name.files]
    return "" if "" in found else next((text for text in found if "†" in text), found[0])


def _problem_in(file: str, name: Name) -> str:
    if not (SRC / file).is_file():
        return "the file does not exist"
    if not name.name:
        return ""
    module = import_module("rillet." + file.removesuffix(".py").replace("/", "."))
    defined = outline(file).names
    path = name.name.split(".")
    # A short name belongs to the class before it, unless the module has it.
    if len(path) == 1 and name.owner and path[0] not in defined:
        path = [*name.owner.split("."), *path]
    if path[0] not in defined:
        return "it does not exist"
    value: Any = module
    declared: bool | None = defined[path[0]]
    if len(path) > 1:
        value = getattr(module, path[0], None)
        if not isinstance(value, type):
            return f"{path[0]} is not a class"
        declared = next((found for kind in value.__mro__ if (found := _of_class(kind, path[1])) is not None), None)
    hidden, seen = bool(declared), hasattr(value, path[-1])
    if declared is None and not seen:
        return "it does not exist"
    if hidden != name.marked:
        return "compiled, it is C only: add †" if hidden else "Python sees it in both builds: remove †"
    if COMPILED and hidden and seen:
        return "compiled, Python sees it: remove †"
    # An attribute that methods set on `self` is none of the class, unless it is an extension type.
    of_instance = isinstance(value, type) and bool(value.__flags__ & HEAP_TYPE)
    if COMPILED and not hidden and not seen and not of_instance:
        return "compiled, Python does not see it"
    return ""


by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.mark.slow
@by_page
def test_each_name_exists(page: Path) -> None:
    found = [name for _, cell, default in rows(page) for name in names(cell, default)]
    assert len(found) > 100
    wrong = {f"{' '.join(name.files)}: {name.name}": text for name in found if (text := problem(name))}
    assert wrong == {}


@cache
def words() -> frozenset[str]:
    """Return the identifiers of Redis's source."""
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in REDIS.glob("*.[ch]")]
    return frozenset(word for text in texts for word in _WORD.findall(text))


def c_names(page: Path) -> Iterator[str]:
    """Yield the identifiers in the Redis cells of a page."""
    for cell, _, _ in rows(page):
        for text in re.findall("`([^`]+)`", cell):
            if "*" not in text or text.startswith("unsigned"):
                yield from _WORD.findall(text)


@pytest.mark.environment("RILLET_SUITE_7_0")
@pytest.mark.slow
@by_page
def test_each_c_name_is_in_redis(page: Path) -> None:
    assert sorted(set(c_names(page)) - words() - ONLY_IN_OTHERS) == []


@pytest.mark.environment("RILLET_SUITE_7_0")
def test_the_functions_of_the_headers_are_mapped() -> None:
    mapped = set(c_names(PAGES[1]))
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/|^#.*?(?<!\\)$", "", (REDIS / header).read_text(), flags=re.DOTALL | re.MULTILINE)
        declared = set(re.findall(r"^[a-z][\w \*]*?\b\*?(\w+)\([^;{]*\)\s*[;{]", text, re.MULTILINE))
        assert len(declared) > 5, header
        assert sorted(declared - mapped - NOT_MAPPED) == [], header


def test_the_page_has_the_names_of_articles() -> None:
    mapped = set(c_names(PAGES[1]))
    assert len(mapped) > 900
    named = {"robj", "refcount", "OBJ_ENCODING_EMBSTR", "sdshdr8", "dictht", "HASH_SET_COPY", "moduleType",
            "streamIterator", "streamNACK", "lpInsert", "raxLowWalk", "quicklistNode", "zslInsert",
            "redisDb", "activeExpireCycle", "ACTIVE_EXPIRE_CYCLE_FAST", "RM_CreateDataType", "hashTypeSet"}  # fmt: skip
    assert named <= mapped


@pytest.mark.slow
def test_the_functions_of_the_tour_exist() -> None:
    """Its steps name functions and classes with their file; † is for the tables of names only."""
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\d+\. (.*?)(?=\n\d+\. |\n\n)", text, re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^## \d", text, re.MULTILINE)) == 8
    found = [name for step in steps for name in names(step, ())]
    assert len(found) > 150
    wrong = {f"{name.files}: {name.name}": why for name in found if (why := problem(name)) and "†" not in why}
    assert wrong == {}
