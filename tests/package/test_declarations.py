"""The .pxd files and the copies of the sources that tools/declarations.py writes for Cython."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.variants import long
from tools.declarations import Module, typed_modules, write

BASE = '''\
"""Text."""
from rillet._cython import cython, readonly

LIMIT = cython.declare(cython.int, 5)
_MASK = cython.declare(cython.ulonglong, 7)

@cython.cfunc
def put(data: bytes, at: cython.int) -> cython.int: ...

@cython.cfunc
def unused() -> cython.int: ...

@cython.ccall
@cython.exceptval(-2, check=False)
def far(at: cython.p_const_uchar, more: bool = True) -> cython.longlong: ...

@cython.cclass
class Base:
    size: readonly[cython.int]

    @cython.cfunc
    def move(self, by: cython.int) -> cython.bint: ...

    @cython.ccall
    def find(
        self, key: bytes, others: list[Any]
    ) -> cython.Py_ssize_t: ...

    @cython.cfunc
    @cython.exceptval(check=False)
    def quick(self) -> cython.bint: ...

    def plain(self) -> int: ...
'''
USER = '''\
from typing import TYPE_CHECKING, Annotated, Any

from rillet._cython import cython, public, readonly
from rillet.base import LIMIT, Base, LIMITS, far, put as store
from rillet.base import Base as Unused

if cython.compiled:
    from cython.cimports.rillet._extern import Struct

if TYPE_CHECKING:
    from rillet.base import unused

state = cython.declare(Struct)


@cython.final
@cython.no_gc
@cython.cclass
class Own(Base):
    """Text."""

    __slots__ = ()
    words: public[list[bytes]]  # comment
    pairs: dict[
        bytes, int
    ]
    other: readonly[Own | None]
    base: Base
    at: cython.pp_uchar
    numbers: Annotated[Any, cython.ulonglong[8]]
    anything: Any

    @cython.cfunc
    def move(self, by: cython.int) -> cython.bint: ...

    @cython.final
    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def turn(self, at: cython.p_void) -> None: ...

    @cython.ccall
    def get(self, pairs: list[tuple[bytes, int]], words: list[bytes] | None) -> list[str] | None: ...
'''


@pytest.fixture
def modules() -> dict[str, Module]:
    found: dict[str, Module] = {}
    for name, source in (("base", BASE), ("user", USER)):
        found[f"rillet.{name}"] = Module(f"rillet.{name}", source, found)
    return found


def test_a_pxd_has_the_classes_and_what_other_modules_import(modules: dict[str, Module]) -> None:
    assert modules["rillet.base"].pxd({"put", "far", "LIMIT"}).splitlines() == [
        "cimport cython",
        "",
        "cdef int LIMIT",
        "cdef int put(bytes data, int at) except? -1",
        "cpdef long long far(const unsigned char *at, object more=*) except -2",
        "",
        "cdef class Base:",
        "    cdef readonly int size",
        "    cdef bint move(self, int by) except? -1",
        "    cpdef Py_ssize_t find(self, bytes key, list others) except? -1",
        "    cdef bint quick(self) noexcept",
    ]


def test_a_derived_class_has_its_attributes_and_no_second_declaration_of_a_method(modules: dict[str, Module]) -> None:
    assert modules["rillet.user"].pxd(set()).splitlines() == [
        "cimport cython",
        "from rillet.base cimport Base",
        "",
        "",
        "@cython.final",
        "@cython.no_gc",
        "cdef class Own(Base):",
        "    cdef public list[bytes] words",
        "    cdef dict pairs",
        "    cdef readonly Own other",
        "    cdef Base base",
        "    cdef unsigned char **at",
        "    cdef unsigned long long numbers[8]",
        "    cdef object anything",
        "    @cython.final",
        "    cdef void turn(self, void *at) noexcept nogil",
        "    cpdef list get(self, list pairs, list[bytes] words)",
    ]


def test_a_variable_may_have_a_type_of_a_pxd_without_a_source(modules: dict[str, Module]) -> None:
    lines = modules["rillet.user"].pxd({"state"}).splitlines()
    assert lines[1:3] == ["from rillet.base cimport Base", "from rillet._extern cimport Struct"]
    assert "cdef Struct state" in lines


def test_a_copy_has_the_same_lines_without_what_the_pxd_says(modules: dict[str, Module]) -> None:
    before, after = USER.splitlines(), modules["rillet.user"].copy(set()).splitlines()
    assert len(before) == len(after)
    changed = {old.strip(): new.strip() for old, new in zip(before, after, strict=True) if old != new}
    assert changed == {
        "from rillet._cython import cython, public, readonly": "import cython",
        "from rillet.base import LIMIT, Base, LIMITS, far, put as store":
            "from cython.cimports.rillet.base import LIMIT, Base, far, put as store; from rillet.base import LIMITS",
        "words: public[list[bytes]]  # comment": "# comment",
        "pairs: dict[": "",
        "bytes, int": "",
        "]": "",
        "other: readonly[Own | None]": "",
        "base: Base": "",
        "at: cython.pp_uchar": "",
        "numbers: Annotated[Any, cython.ulonglong[8]]": "",
        "anything: Any": "",
        "@cython.cfunc": "#cython.cfunc",  # of `move`; `turn` says how it fails
        "def get(self, pairs: list[tuple[bytes, int]], words: list[bytes] | None) -> list[str] | None: ...":
            "def get(self, pairs: list, words: list[bytes] | None) -> list: ...",
    }
    assert after.count("    @cython.cfunc") == 1


def test_a_function_that_no_module_imports_keeps_its_decorator(modules: dict[str, Module]) -> None:
    lines = modules["rillet.base"].copy({"put"}).splitlines()
    assert lines[lines.index("def unused() -> cython.int: ...") - 1] == "@cython.cfunc"
    assert lines[lines.index("def put(data: bytes, at: cython.int) -> cython.int: ...") - 1] == "#cython.cfunc"


@pytest.mark.long
def _tree(src: Path) -> Path:
    """Write sources with two typed modules, a plain one and a .pxd file by hand."""
    (src / "rillet").mkdir(parents=True)
    for name, text in {
        "_compiled.py": 'TYPED = ("base", "user")\nPLAIN = ("plain",)\n', "base.py": BASE, "user.py": USER,
        "plain.py": "", "_extern.pxd": "cdef struct Struct: pass\n",
    }.items():  # fmt: skip
        (src / "rillet" / name).write_text(text)
    return src


@pytest.mark.parametrize("whole", [False, *long(True)])  # the compiled build is made from the whole
def test_every_typed_module_has_its_files_and_old_ones_go(whole: bool, tmp_path: Path) -> None:
    src = Path(__file__).resolve().parents[2] / "src"
    if not whole:
        src = _tree(tmp_path / "small")
    tmp_path = tmp_path / "written"
    tmp_path.mkdir()
    (tmp_path / "rillet.gone.pxd").write_text("")
    write(src, tmp_path)
    names = set(typed_modules(src))
    handwritten = {".".join(path.relative_to(src).with_suffix("").parts) for path in src.rglob("*.pxd")}
    assert {path.stem for path in tmp_path.glob("*.pxd")} == names | handwritten
