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


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((SRC / file).read_text(encoding="utf-8"))


def _decorated(node: ast.AST, name: str) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(one).split("(")[0] == f"cython.{name}" for one in decorators)


def is_c_only(file: str, path: list[str], classes: tuple[type, ...]) -> bool:
    """Return whether a compiled module keeps a name from Python: a C function, a field or a C variable."""
    if file.removesuffix(".py") not in TYPED:
        return False
    if len(path) == 1:
        for node in tree(file).body:
            if isinstance(node, ast.FunctionDef) and node.name == path[0]:
                return _decorated(node, "cfunc")
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == path[0]:
                return ast.unparse(node.value).startswith("cython.declare(")
        return False
    for kind in classes:
        home = kind.__module__.removeprefix("rillet.").replace(".", "/") + ".py"
        if not (SRC / home).is_file():
            continue
        found = [one for one in tree(home).body if isinstance(one, ast.ClassDef) and one.name == kind.__name__]
        for node in found[0].body if found else ():
            if isinstance(node, ast.FunctionDef) and node.name == path[1]:
                return _decorated(node, "cfunc")
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == path[1]:
                visible = ast.unparse(node.annotation).split("[")[0] in ("public", "readonly")
                return _decorated(found[0], "cclass") and not visible
    return False


def _assigns(kind: type, name: str) -> bool:
    """Return whether the class declares an attribute, or its methods set it on `self`."""
    home = kind.__module__.removeprefix("rillet.").replace(".", "/") + ".py"
    if not (SRC / home).is_file():
        return False
    for node in tree(home).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            for part in ast.walk(node):
                if isinstance(part, (ast.AnnAssign, ast.Assign)):
                    targets = [part.target] if isinstance(part, ast.AnnAssign) else part.targets
                    if any(ast.unparse(one) in (name, f"self.{name}") for one in targets):
                        return True
    return False


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
    path = name.name.split(".")
    # A short name belongs to the class before it, unless the module has it.
    in_module = any(path[0] in _defined(node) for node in tree(file).body)
    if len(path) == 1 and name.owner and not in_module:
        path = [*name.owner.split("."), *path]
    value: Any = module
    classes: tuple[type, ...] = ()
    if len(path) > 1:
        value = getattr(module, path[0], None)
        if not isinstance(value, type) or all(path[0] not in _defined(node) for node in tree(file).body):
            return f"{path[0]} is not a class of the file"
        classes = value.__mro__
    hidden = is_c_only(file, path, classes)
    seen = hasattr(value, path[-1])
    assigned = any(_assigns(kind, path[-1]) for kind in classes)
    if not (seen or assigned or hidden) or (len(path) == 1 and not in_module):
        return "it does not exist"
    if hidden != name.marked:
        return "compiled, it is C only: add †" if hidden else "Python sees it in both builds: remove †"
    if COMPILED and (hidden or not assigned):
        if hidden and seen:
            return "compiled, Python sees it: remove †"
        return "" if hidden or seen else "it does not exist"
    return ""


def _defined(node: ast.AST) -> set[str]:
    """Return the names that a statement of a module defines."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    found = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return found | ({node.name} if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else set())


by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


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


def test_the_functions_of_the_tour_exist() -> None:
    """Its steps name functions and classes with their file; † is for the tables of names only."""
    text = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\d+\. (.*?)(?=\n\d+\. |\n\n)", text, re.MULTILINE | re.DOTALL)
    assert len(re.findall(r"^## \d", text, re.MULTILINE)) == 8
    found = [name for step in steps for name in names(step, ())]
    assert len(found) > 150
    wrong = {f"{name.files}: {name.name}": why for name in found if (why := problem(name)) and "†" not in why}
    assert wrong == {}
