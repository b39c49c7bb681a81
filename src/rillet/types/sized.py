"""The base class of values whose size the keyspace counts (keyspace/memory_usage.py).

`charge` is the number of bytes that the keyspace counted for the value, 0 if the value is in no keyspace. It is not the
value's current size: the keyspace measures a value again after commands have looked it up.
"""

from __future__ import annotations

from rillet._cython import cython, public


@cython.cclass
class SizedValue:
    """A value with a `charge`."""

    __slots__ = ("charge",)
    charge: public[cython.Py_ssize_t]
