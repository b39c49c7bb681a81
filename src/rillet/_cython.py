"""`cython` for typed modules: Cython's own module, or this one as a substitute if Cython is not installed.

    from rillet._cython import cython, public, readonly

The byte-level modules are typed Python that Cython compiles in pure-Python mode; it resolves the names of `cython` then
(tools/translator.py), and compiled code never uses this file. Cython is therefore needed only to build rillet. Of the
substitute, every decorator returns its argument, and every C type is an alias of the Python type that holds its values.

It defines only the names that `src` uses; a test compares the two. It does not imitate the overflow and
truncation of C types: the sources mask values and check ranges, so that both modes agree.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    import cython
else:
    try:
        import cython
    except ModuleNotFoundError:
        cython = sys.modules[__name__]

_T = TypeVar("_T")

# Python sees an attribute of a compiled class if its annotation is one of these (tools/declarations.py).
public: TypeAlias = Annotated[_T, "public"]
readonly: TypeAlias = Annotated[_T, "readonly"]

compiled = False

# C types. `int` and `float` are assigned last, because they shadow the builtins (still available in `builtins`).
bint = bool
char = schar = uchar = short = ushort = uint = long = ulong = longlong = ulonglong = builtins.int
Py_ssize_t = size_t = Py_hash_t = builtins.int
double = builtins.float
void = None
NULL = None
p_char = p_uchar = p_const_uchar = p_void = bytearray
pp_const_uchar = pp_uchar = p_Py_ssize_t = p_uint = p_ulonglong = p_double = list
int = builtins.int
float = builtins.float


def _same(target: _T) -> _T:
    return target


cfunc = ccall = inline = nogil = with_gil = final = cclass = internal = no_gc = no_gc_clear = _same


def _decorator(*_args: Any, **_kwargs: Any) -> Callable[[_T], _T]:
    return _same


exceptval = boundscheck = wraparound = initializedcheck = cdivision = nonecheck = _decorator
freelist = locals = returns = _decorator


def declare(_type: Any = None, value: Any = None, **_kwargs: Any) -> Any:
    """Return the value; an interpreted variable has no C type."""
    return value


def cast(_type: Any, value: Any, **_kwargs: Any) -> Any:
    """Return the value unchanged; it must already be in the range of the C type."""
    return value


def address(_value: Any) -> Any:
    """Raise TypeError: only compiled code has addresses, and callers check `cython.compiled` first."""
    raise TypeError("cython.address works only in compiled code: interpreted Python has no memory addresses")


def likely(condition: _T) -> _T:
    """Return the condition; only a compiler uses the hint."""
    return condition


unlikely = likely


__all__ = ["cython", "public", "readonly"]
