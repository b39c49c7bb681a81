"""One source, two speeds: the list of compiled modules against the sources, the extensions and the shim."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import rillet
from rillet import _cython
from rillet._compiled import COMPILED, PLAIN, TYPED, by_speed

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src" / "rillet"
LOADED = Path(rillet.__file__).parent

# Imports every listed module, which must have found the interpreted `cython`, and puts one of them to work.
WITHOUT_CYTHON = """
import sys
sys.modules["cython"] = None
from importlib import import_module
from rillet import _cython
from rillet._compiled import PLAIN, TYPED
for name in TYPED + PLAIN:
    module = import_module("rillet." + name.replace("/", "."))
    assert module.__file__.endswith(".py"), module.__file__
    assert name in PLAIN or module.cython is _cython, name
from rillet.structs.listpack import Listpack
pack = Listpack()
pack.append(b"17")
pack.append(b"seventeen")
assert [pack.get(pack.seek(index)) for index in (0, 1)] == [17, b"seventeen"]
print("ok")
"""


def imports_the_shim(tree: ast.Module) -> bool:
    """Whether a module imports `cython`, by the line that both modes share."""
    return any(isinstance(node, ast.ImportFrom) and node.module == "rillet._cython" for node in tree.body)


@functools.cache
def typed_sources() -> dict[str, ast.Module]:
    """Return the syntax tree of each file that imports the shim, by its name in the list."""
    sources = {p.relative_to(SRC).with_suffix("").as_posix(): p.read_text() for p in SRC.rglob("*.py")}
    trees = {name: ast.parse(source) for name, source in sources.items() if "rillet._cython" in source}
    return {name: tree for name, tree in trees.items() if imports_the_shim(tree)}


class CythonNames(ast.NodeVisitor):
    """Collects the X of every `cython.X`, on demand without those that stand under `if cython.compiled:`."""

    def __init__(self, interpreted_only: bool) -> None:
        self.interpreted_only = interpreted_only
        self.names: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name) and node.value.id == "cython":
            self.names.add(node.attr)
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        test = node.test
        compiled_only = (isinstance(test, ast.Attribute) and test.attr == "compiled"
                         and isinstance(test.value, ast.Name) and test.value.id == "cython")  # fmt: skip
        for statement in ([] if compiled_only and self.interpreted_only else node.body) + node.orelse:
            self.visit(statement)


def cython_names(tree: ast.Module, interpreted_only: bool = False) -> set[str]:
    """Return the names that a module takes from the shim."""
    collector = CythonNames(interpreted_only)
    collector.visit(tree)
    return collector.names


def built_extensions(folder: Path) -> set[str]:
    """Return the extensions of this Python below a package folder, by their names in the list."""
    suffix = EXTENSION_SUFFIXES[0]
    found = {p.relative_to(folder).as_posix().removesuffix(suffix) for p in folder.rglob(f"*{suffix}")}
    return found - {"_cyutility"}  # Cython's utility code


@pytest.mark.slow
def test_typed_modules_are_those_that_import_the_shim() -> None:
    assert sorted(TYPED) == sorted(typed_sources())


def test_plain_modules_exist_and_import_no_shim() -> None:
    assert [name for name in PLAIN if not (SRC / f"{name}.py").is_file()] == []
    assert set(PLAIN) & (set(TYPED) | set(typed_sources())) == set()


def test_no_pxd_repeats_what_a_source_says() -> None:
    assert [p for p in SRC.rglob("*.pxd") if p.with_suffix(".py").exists()] == []


def test_there_is_no_second_implementation() -> None:
    """No second implementation, in whatever language, and nothing built in src."""
    foreign = [p for p in SRC.rglob("*") if p.suffix in {".pyx", ".c", ".cpp", ".h", ".rs", ".so", ".pyd", ".o"}]
    assert foreign == []


@pytest.mark.both
def test_built_extensions_are_the_listed_ones() -> None:
    built = built_extensions(LOADED)
    if os.environ.get("RILLET_EXPECT") == "compiled":
        assert built == set(COMPILED)
    else:
        assert built <= set(COMPILED)


@pytest.mark.both
def test_the_mode_that_was_asked_for_is_the_one_that_loaded() -> None:
    expected = os.environ.get("RILLET_EXPECT")
    compiled, interpreted = by_speed()
    assert rillet.compiled() == (bool(compiled) and not interpreted)
    if expected is not None:
        assert rillet.compiled() == (expected == "compiled")
        assert set(compiled if expected == "compiled" else interpreted) == set(COMPILED)


@pytest.mark.slow
def test_the_shim_has_every_name_that_the_sources_use() -> None:
    missing = {
        name: unknown
        for name, tree in typed_sources().items()
        if (unknown := {used for used in cython_names(tree, True) if not hasattr(_cython, used)})
    }
    assert missing == {}


@pytest.mark.slow
def test_the_stub_has_every_name_that_the_sources_use() -> None:
    told: set[str] = set()
    for node in ast.parse((ROOT / "stubs" / "cython.pyi").read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            told.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            told.add(node.target.id)
        elif isinstance(node, ast.ImportFrom):
            told |= {alias.asname or alias.name for alias in node.names}
    used = set().union(*(cython_names(tree) for tree in typed_sources().values()))
    assert used - told == set()


def interpreted(code: str) -> str:
    """Run code in a fresh interpreter over src, and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_sources_run_without_cython() -> None:
    assert interpreted(WITHOUT_CYTHON) == "ok"


@pytest.mark.slow
def test_sources_run_with_cython_installed() -> None:
    """Cython's own `cython` module, where it is installed, means the same."""
    pytest.importorskip("Cython")
    code = WITHOUT_CYTHON.replace('sys.modules["cython"] = None', "import cython")
    assert interpreted(code.replace("module.cython is _cython", "module.cython is cython")) == "ok"


def test_the_shim_gives_back_what_it_is_given() -> None:
    def function(value: int) -> int:
        return value + 1

    for decorator in (_cython.cfunc, _cython.ccall, _cython.inline, _cython.final, _cython.cclass):
        assert decorator(function) is function
    for maker in (_cython.exceptval, _cython.boundscheck, _cython.wraparound, _cython.locals):
        assert maker(check=False)(function) is function
    assert _cython.declare(_cython.int, 5) == 5
    assert _cython.cast(_cython.ulonglong, 1 << 63) == 1 << 63
    assert _cython.likely(True)
    assert not _cython.unlikely(False)
    assert _cython.compiled is False
    assert isinstance(7, _cython.int)
    assert isinstance(7.0, _cython.double)


@pytest.mark.slow
def test_a_typed_module_has_no_loop_over_a_range_with_a_variable_step() -> None:
    """Cython makes a Python object of such a range (docs/design/0001)."""
    found = []
    for name, tree in typed_sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and len(node.iter.args) == 3:
                step = node.iter.args[2]
                constant = isinstance(step, ast.Constant | ast.UnaryOp) or ast.unparse(step).isupper()
                if ast.unparse(node.iter.func) == "range" and not constant:
                    found.append(f"{name}:{node.lineno}")
    assert not found
