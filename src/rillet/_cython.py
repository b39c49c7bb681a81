"""The interpreted meaning of the `cython` names that rillet's typed modules use.

The byte-level modules are typed Python that Cython compiles in pure-Python mode. Uncompiled they
import this file under the name `cython` where Cython itself is not installed, so Cython is needed
to build rillet and never to run it. Every decorator returns what it was given; every C type reads
as the Python type that holds its values. Nothing here is seen by compiled code: Cython resolves
the names while compiling.

The names are a subset of Cython's on purpose, the ones that `src` uses; a test holds the two
together. What a C type does and an `int` does not (wrap around, truncate) is not imitated: the
sources mask and check ranges, so that the two modes agree without it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

compiled = False

# C types. `int` and `float` are bound last, with the others: the builtins stay reachable as `builtins.int`.
bint = bool
char = schar = uchar = short = ushort = uint = long = ulong = longlong = ulonglong = builtins.int
Py_ssize_t = size_t = Py_hash_t = builtins.int
double = builtins.float
void = None
p_char = p_uchar = p_const_uchar = p_void = bytearray
pp_const_uchar = p_Py_ssize_t = p_uint = list
int = builtins.int
float = builtins.float


def _same(target: _T) -> _T:
    return target


cfunc = ccall = inline = nogil = final = cclass = internal = no_gc = no_gc_clear = _same


def _decorator(*_args: Any, **_kwargs: Any) -> Callable[[_T], _T]:
    return _same


exceptval = boundscheck = wraparound = initializedcheck = cdivision = nonecheck = _decorator
freelist = locals = returns = _decorator


def declare(_type: Any = None, value: Any = None, **_kwargs: Any) -> Any:
    """Return the value: an interpreted variable has no C type."""
    return value


def cast(_type: Any, value: Any, **_kwargs: Any) -> Any:
    """Return the value unchanged, so it must already be in the range of the C type."""
    return value


def address(_value: Any) -> Any:
    """Refuse: only compiled code has addresses, so what asks for one stands behind `cython.compiled`."""
    raise TypeError("interpreted code has no addresses")


def likely(condition: _T) -> _T:
    """Return the condition: only a compiler has a use for the hint."""
    return condition


unlikely = likely
