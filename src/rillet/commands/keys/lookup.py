"""EXISTS, TOUCH, TYPE and DBSIZE (Redis: db.c)."""

from __future__ import annotations

from rillet._cython import cython
from rillet.commands.keys import command
from rillet.keyspace.database import Database
from rillet.runtime.implementation import Implementation
from rillet.runtime.session import Session
from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.array import Array
from rillet.types.hash import Hash
from rillet.types.list import List
from rillet.types.module import ModuleValue
from rillet.types.set import Set
from rillet.types.stream.stream import Stream
from rillet.types.string import String
from rillet.types.zset import Zset

TYPE_NAMES: dict[type, bytes] = {
    String: b"string", List: b"list", Set: b"set", Zset: b"zset", Hash: b"hash", Stream: b"stream",
    Array: b"array",
}  # fmt: skip


@cython.final
@cython.cclass
class Exists(Implementation):
    """EXISTS (existsCommand)."""

    __slots__ = ()

    @cython.ccall
    def run(self, session: Session, words: ArgumentSpans) -> cython.bint:
        """Reply with the number of keys that exist."""
        db: Database = session.db
        found: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        for at in range(1, words.count):
            found += db.locate_untouched(words, at) >= 0
        return session.out.integer(found)


command("exists", arity=-2, flags="readonly fast", keys=(1, -1, 1), since="1.0.0", syntax="key [key ...]",
        complexity="O(N) for N keys",
        summary="Return how many of the keys exist; a key that is given twice counts twice.")(Exists)


@command("touch", arity=-2, flags="readonly fast", keys=(1, -1, 1), since="3.2.1", syntax="key [key ...]",
         complexity="O(N) for N keys")
def touch(session: Session, argv: list[bytes]) -> None:
    """Record an access of keys and return how many of them exist."""
    session.out.integer(sum(1 for key in argv[1:] if session.db.find_read(key) >= 0))


@command("type", arity=2, flags="readonly fast", since="1.0.0", syntax="key", complexity="O(1)")
def type_(session: Session, argv: list[bytes]) -> None:
    """Return the type of the value at a key."""
    n = session.db.find_untouched(argv[1])
    session.out.simple(b"none" if n < 0 else type_name(session.db, n))


def type_name(database: Database, n: int) -> bytes:
    """Return the name of the type of an entry's value; that of a module's type is chosen by the module."""
    kind = database.type_at(n)
    return database.value_at(n).type.name.encode() if kind is ModuleValue else TYPE_NAMES[kind]


@command("dbsize", arity=1, flags="readonly fast", keys=(0, 0, 0), group="server", since="1.0.0", complexity="O(1)")
def dbsize(session: Session, argv: list[bytes]) -> None:
    """Return the number of keys in the database."""
    session.out.integer(len(session.db))
