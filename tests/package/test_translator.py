"""What tools/translator.py changes in the sources and the .pxd files that Cython reads."""

from __future__ import annotations

import pytest

pytest.importorskip("cython")  # which interpreted runs hide

from tools.translator import copied, declarations, methods, with_default

PXD = """\
cdef int put(bytes data, int at)
cdef long long far(int at) except -1
cdef class Base:
    cdef readonly int size
    cdef bint move(self, int by)
    cpdef Py_ssize_t find(
        self, bytes key)
    cdef object get(self)
    cdef bint quick(self) noexcept

cdef class Derived(Base):
    cdef bint turn(self)
"""
SOURCE = """\
from rillet._cython import cython

@cython.cfunc
def put(data: bytes, at: cython.int) -> cython.int: ...

@cython.cclass
class Own(Derived):
    @cython.cfunc
    @cython.boundscheck(False)
    def move(self, by: cython.int) -> cython.bint: ...

    @cython.ccall
    def own(self) -> cython.bint: ...

    @cython.cfunc
    @cython.exceptval(check=False)
    def turn(self) -> cython.bint: ...
"""


def test_integers_fail_by_minus_one_unless_the_declaration_says_how() -> None:
    lines = with_default(PXD).splitlines()
    assert lines[0] == "cdef int put(bytes data, int at) except? -1"
    assert lines[4:7] == ["    cdef bint move(self, int by) except? -1", "    cpdef Py_ssize_t find(",
                          "        self, bytes key) except? -1"]  # fmt: skip
    same = [*range(1, 4), 7, 8, 9, 10]
    assert [lines[at] for at in same] == [PXD.splitlines()[at] for at in same]


def test_a_class_has_the_methods_of_its_bases() -> None:
    assert methods([PXD]) == {"Base": {"move", "find"}, "Derived": {"move", "find", "turn"}}


def test_a_copy_has_the_same_lines_and_no_second_declaration() -> None:
    before = SOURCE.splitlines()
    lines = copied(SOURCE, "cdef int put(bytes data, int at)\n", methods([PXD])).splitlines()
    assert len(lines) == len(before)
    changed = {before[at]: lines[at] for at in range(len(lines)) if lines[at] != before[at]}
    assert changed == {
        "from rillet._cython import cython": "import cython",
        "@cython.cfunc": "#",
        "    @cython.cfunc": "    #",
    }
    assert lines[2] == "#"
    assert lines[7] == "    #"
    assert lines[11] == "    @cython.ccall"  # no .pxd file declares it
    assert lines[14] == "    @cython.cfunc"  # it says how it fails


def test_functions_that_no_module_uses_are_hidden_from_others() -> None:
    assert declarations("cdef int used()\ncdef int unused()\n", {"used"}) == "cdef int used()\n"
