"""Sortable: the methods of lists, sets and sorted sets that run SORT.

    jobs.sorted_values(descending=True)                        numbers, the greatest first
    jobs.sorted_values(alpha=True, count=10)                   the first ten texts
    jobs.sorted_values(by="weight:*")                          by the values of weight:a, weight:b ...
    jobs.sorted_lookup("#", "user:*->name", by="user:*->age")  each element with a field of a hash
    jobs.store_sorted(store.list("result"), alpha=True)        into a list

A pattern names a key for each element, which replaces its `*`; behind `->` it names a field of that hash. In a cluster,
a pattern is accepted only if all its keys are in the slot of the sorted key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rillet.store.arguments.argument_checks import flag, integer_of, whole_number
from rillet.store.arguments.encoding import decode, encode_name
from rillet.store.types.stored_key import StoredKey, V, key_in

if TYPE_CHECKING:
    from rillet.store.types.list import List


class Sortable(StoredKey[V]):
    """A key whose elements SORT accepts."""

    __slots__ = ()

    def sorted_values(self, *, by: str | bytes | None = None, start: int = 0, count: int | None = None,
                      descending: bool = False, alpha: bool = False) -> list[V]:  # fmt: skip
        """Return the elements in order of their numbers (SORT). O(elements * log(elements))

        by: a pattern of the keys whose values are compared instead; without `*`, the elements keep their order.
        start, count: which of the sorted elements; alpha: compare bytes. CommandError if a value is not a number.
        """
        argv = [b"SORT", self.key, *_options(by, start, count, descending, alpha)]
        return list(map(self._decode, self.store.run(argv)))

    def sorted_lookup(self, *get: str | bytes, by: str | bytes | None = None, start: int = 0, count: int | None = None,
                      descending: bool = False, alpha: bool = False) -> list[tuple[str | None, ...]]:  # fmt: skip
        """Return for each element, in order, the texts that the patterns name; see sorted_values (SORT GET).

        The pattern `#` is the element itself. A text is None if the key or the field does not exist.
        """
        if not get:
            raise ValueError("pass at least one pattern, such as 'user:*->name', or '#' for the element")
        argv = [b"SORT", self.key, *_options(by, start, count, descending, alpha), *_patterns(get)]
        texts = [None if raw is None else decode(raw) for raw in self.store.run(argv)]
        return [tuple(texts[at : at + len(get)]) for at in range(0, len(texts), len(get))]

    def store_sorted(self, to: List[V], *get: str | bytes, by: str | bytes | None = None, start: int = 0,
                     count: int | None = None, descending: bool = False, alpha: bool = False) -> int:  # fmt: skip
        """Replace a list by the sorted elements, or by what patterns name; return its length (SORT STORE). Atomic.

        A key or field that does not exist is stored as an empty text.
        """
        argv = [b"SORT", self.key, *_options(by, start, count, descending, alpha), *_patterns(get)]
        argv += (b"STORE", key_in(to, "to", Sortable))
        return int(self.store.run(argv))


def _options(by: str | bytes | None, start: int, count: int | None, descending: bool,
             alpha: bool) -> Iterator[bytes]:  # fmt: skip
    """Yield the options of SORT."""
    if by is not None:
        yield from (b"BY", encode_name(by, "by"))
    first = whole_number(start, "start", 0)
    if first or count is not None:
        yield from (b"LIMIT", b"%d" % first, b"-1" if count is None else integer_of(count, "count", 0))
    if flag(descending, "descending"):
        yield b"DESC"
    if flag(alpha, "alpha"):
        yield b"ALPHA"


def _patterns(get: Iterable[str | bytes]) -> Iterator[bytes]:
    """Yield a GET for each pattern."""
    for pattern in get:
        yield from (b"GET", encode_name(pattern, "one of get"))
