"""The decision of a user's rules for all calls of one command: a permitted call costs a comparison of its keys.

    call                  the rules depend on          decision
    PING                  the command                  always permitted
    SET key value         the command and the keys     patterns; every key must match one of them
    XREAD ... STREAMS k   likewise                     patterns, and the word that the keys follow
    EVAL ... 2 k1 k2      likewise                     patterns, and the function that finds the keys
    SUBSCRIBE channel     other words than the keys    open: never permitted by the decision

`User` computes the decision about a command with the rules themselves (user.py) when a session calls the command for
the first time, and drops it when a rule changes. A decision permits a call or leaves it open, and never denies it: the
rules decide about an open call, and find the reason for which it is denied.

    patterns[selector][key] -> the patterns for the first key of a call, for the second ...; the last ones also for more

One selector must permit all keys. The access of a few commands depends on their options (SET reads with GET only):
above `fixed` words, a call is permitted by patterns that grant every access.

Costs: O(keys * patterns), and no object, unless a function finds the keys.
"""

from __future__ import annotations

from rillet._cython import cython
from rillet.runtime.acl.key_access import first_after
from rillet.runtime.key_specifications import KEYWORD_SEARCH
from rillet.runtime.registry import Command
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.glob import matches_any, matches_any_at

# For each selector and each key of a call: patterns.
Patterns = list[list[list[bytes]]]


@cython.final
@cython.cclass
class CommandDecision:
    """The calls of one command that one user certainly may make."""

    __slots__ = ("_always", "_entry", "_first", "_fixed", "_keyword", "_last", "_patterns", "_step", "_wide")
    _always: cython.bint
    _first: cython.Py_ssize_t
    _last: cython.Py_ssize_t
    _step: cython.Py_ssize_t
    _fixed: cython.Py_ssize_t
    _keyword: bytes | None
    _entry: Command | None
    _patterns: list[list[list[bytes]]]
    _wide: list[list[list[bytes]]]

    def __init__(self, always: cython.bint) -> None:
        """Permit all calls or none; `require` permits some."""
        self._always = always
        self._first = self._last = self._step = self._fixed = 0
        self._entry = self._keyword = None
        self._patterns = self._wide = []

    def require(self, entry: Command, fixed: int, patterns: Patterns, wide: Patterns) -> CommandDecision:
        """Permit calls whose keys match `patterns`, or `wide` if the call has more than `fixed` words."""
        self._first, self._last, self._step = entry.keys
        # Its function finds the keys; a module may also declare positions that go backwards.
        self._entry = entry if entry.get_keys is not None or self._first < 1 or self._step < 1 else None
        if entry.fullname in KEYWORD_SEARCH:
            keyword, self._first = KEYWORD_SEARCH[entry.fullname]
            self._keyword, self._step = keyword.lower(), 1
        self._fixed, self._patterns, self._wide = fixed, patterns, wide
        return self

    @cython.ccall
    def permits(self, words: ArgumentSpans) -> cython.bint:
        """Return whether the call is certainly permitted. O(keys * patterns)"""
        if self._always:
            return True
        i: cython.Py_ssize_t
        keys: list[bytes] | None = None
        first: cython.Py_ssize_t = self._first
        end: cython.Py_ssize_t = min(self._last if self._last >= 0 else words.count + self._last, words.count - 1)
        if self._keyword is not None:
            first = first_after(words, self._keyword, first)
            end = first + (words.count - first) // 2 - 1
        if self._entry is not None and (self._keyword is None or first == 0):
            keys = [words.get(at) for at in self._entry.key_positions(words.to_list())]
        selectors: list[list[list[bytes]]] = self._patterns if words.count <= self._fixed else self._wide
        for i in range(len(selectors)):
            if self._match(selectors[i], words, first, end) if keys is None else _match_all(selectors[i], keys):
                return True
        return False

    @cython.cfunc
    def _match(
        self, patterns: list[list[bytes]], words: ArgumentSpans, at: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.bint:
        """Return whether the keys at these positions match the patterns of one selector."""
        index: cython.Py_ssize_t = 0
        while at <= end:
            if not matches_any_at(patterns[index], words.at[at], words.size[at]):
                return False
            at += self._step
            index = min(index + 1, len(patterns) - 1)
        return True


@cython.cfunc
def _match_all(patterns: list[list[bytes]], keys: list[bytes]) -> cython.bint:
    """Return whether the keys match the patterns of one selector."""
    index: cython.Py_ssize_t = 0
    key: bytes
    for key in keys:
        if not matches_any(patterns[index], key):
            return False
        index = min(index + 1, len(patterns) - 1)
    return True
