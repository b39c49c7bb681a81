"""The interpreted meaning of the `cython` names that rillet's typed modules use.

The byte-level modules are typed Python that Cython compiles in pure-Python mode. Uncompiled they
import this file under the name `cython` where Cython itself is not installed, so Cython is needed
to build rillet and never to run it. Every decorator returns what it was given; every C type reads
as the Python type that holds its values. Nothing here is seen by compiled code: Cython resolves
the names while compiling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

compiled = False

bint = bool
char = uchar = short = ushort = int_ = uint = long = ulong = longlong = ulonglong = int
Py_ssize_t = size_t = int
double = float
void = None
p_uchar = p_char = bytearray


def _same(target: _T) -> _T:
    return target


cfunc = ccall = inline = final = cclass = no_gc = no_gc_clear = _same


def _decorator(*_args: Any, **_kwargs: Any) -> Callable[[_T], _T]:
    return _same


exceptval = boundscheck = wraparound = freelist = cdivision = nonecheck = locals = returns = _decorator


def declare(_type: Any, value: Any = None, **_kwargs: Any) -> Any:
    """Return the value: an interpreted variable has no C type."""
    return value


def cast(_type: Any, value: Any, **_kwargs: Any) -> Any:
    """Return the value unchanged, so it must already be in the range of the C type."""
    return value


def likely(condition: _T) -> _T:
    """Return the condition: only a compiler has a use for the hint."""
    return condition


unlikely = likely


int = int_  # noqa: A001  (cython.int, bound last: the name above is the builtin)
