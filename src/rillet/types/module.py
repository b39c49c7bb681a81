"""Values whose type a module defines (Redis: moduleType and moduleValue, module.c).

    database ── key ──► ModuleValue ── type ──► TypeHandle ── guard ──► ModuleType      a class of the module
                             └─ value: any Python object                the methods that the module overrides

A type has a name of nine characters and an encoding version. Together they are a number of 64 bits, which precedes each
value in RDB bytes:

     63                                      10 9        0
    +------+------+------+------+- ... -+------+----------+
    | c[0] | c[1] | c[2] | c[3] |       | c[8] | version  |      6 bits for each character, 10 bits for the version
    +------+------+------+------+- ... -+------+----------+

The author of a module writes a subclass of `ModuleType`. The engine calls its methods only through a `TypeHandle`,
which passes each call to a guard: the guard of rillet.modules limits the time of a call, logs an exception, and raises
ModuleFailure in its place. So a method that fails harms only the command that needed it.

rillet.types.module_io reads and writes the parts of a value.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha1
from typing import Any, ClassVar, NamedTuple

from rillet.errors import CommandError, Corrupt, ModuleFailure
from rillet.types.module_io import ModuleReader, ModuleWriter
from rillet.types.rdb.primitives import RdbReader, RdbWriter
from rillet.types.sized import SizedValue

CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
"""The characters of a type's name; a character's position is its code (ModuleTypeNameCharSet)."""
NAME_SIZE = 9
LAST_VERSION = 1023
BEFORE_KEYS, AFTER_KEYS = 1, 2
"""The bits of `aux_save_triggers`: where in an RDB file the data of a type without a key is saved."""
MODULE_DIGEST = b"\0\0\0\5"

Guard = Callable[..., Any]


def type_id(name: str, version: int) -> int:
    """Return the number of a type; ValueError for an invalid name or version (moduleTypeEncodeId)."""
    if len(name) != NAME_SIZE or not set(name) <= set(CHARACTERS):
        raise ValueError(f"the name of a type has nine characters, letters, digits, - or _: {name!r} does not")
    if not 0 <= version <= LAST_VERSION:
        raise ValueError(f"the encoding version of a type is 0 to {LAST_VERSION}, not {version}")
    number = 0
    for character in name:
        number = number << 6 | CHARACTERS.index(character)
    number = number << 10 | version
    if not number:
        raise ValueError("the name AAAAAAAAA with version 0 is reserved")
    return number


def type_name(number: int) -> str:
    """Return the name in the number of a type (moduleTypeNameByID)."""
    return "".join(CHARACTERS[number >> 10 + 6 * at & 63] for at in range(NAME_SIZE - 1, -1, -1))


class KeyPlace(NamedTuple):
    """The database and the key of a value; -1 and empty if the value has none."""

    database: int
    key: bytes


NOWHERE = KeyPlace(-1, b"")


class Digest:
    """The digest of a value: `add` for parts in order, and `end_sequence` after each group of them (RedisModuleDigest).

    The order of the groups does not matter.
    """

    __slots__ = ("_open", "total")

    def __init__(self) -> None:
        self._open = bytes(20)
        self.total = bytes(20)

    def add(self, part: bytes | int) -> None:
        """Add bytes, or the decimal text of an integer."""
        data = b"%d" % part if isinstance(part, int) else part
        mixed = _xor(self._open, sha1(data, usedforsecurity=False).digest())
        self._open = sha1(mixed, usedforsecurity=False).digest()

    def end_sequence(self) -> None:
        """End a group of parts."""
        self.total = _xor(self.total, sha1(self._open, usedforsecurity=False).digest())
        self._open = bytes(20)


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(20, "big")


class DefragPass:
    """One call of `ModuleType.defrag`: the state that the call before left, and whether it is time to return."""

    __slots__ = ("_stop", "cursor", "freed", "moved")

    def __init__(self, cursor: Any, stop: Callable[[], bool]) -> None:
        self.cursor = cursor
        self._stop = stop
        self.moved = 0
        self.freed = 0

    @property
    def should_stop(self) -> bool:
        """Whether the time of this call has passed: set `cursor` and return True to continue later."""
        return self._stop()


class ModuleType:
    """The base class of a module's types. Each method has the meaning of the callback of that name in Redis.

    name: nine characters, unique among all modules of the world. encoding_version: the version of the bytes that
    `rdb_save` writes; `rdb_load` receives the version of the bytes that it reads.
    """

    name: ClassVar[str]
    encoding_version: ClassVar[int] = 0
    aux_save_triggers: ClassVar[int] = 0

    def rdb_save(self, out: ModuleWriter, value: Any) -> None:
        """Write the value: `out.unsigned(n)`, `out.string(data)` ... O(size of the value)"""
        raise NotImplementedError(f"the type {self.name} has no rdb_save")

    def rdb_load(self, source: ModuleReader, version: int) -> Any:
        """Read the parts that `rdb_save` wrote in that version, and return the value; None rejects the bytes."""
        raise NotImplementedError(f"the type {self.name} has no rdb_load")

    def aof_rewrite(self, place: KeyPlace, value: Any) -> Iterator[list[Any]]:
        """Yield the commands that create the value, as lists of words, for a log without an RDB base.

        Without this method, the log contains a RESTORE of the value.
        """
        raise NotImplementedError

    def mem_usage(self, value: Any, samples: int) -> int:
        """Return the bytes of the value. This runs after each command that looks the value up: let it be O(1)."""
        return sys.getsizeof(value)

    def digest(self, digest: Digest, place: KeyPlace, value: Any) -> None:
        """Add the parts of the value to the digest (DEBUG DIGEST)."""

    def free(self, value: Any) -> None:
        """Release what the value holds outside of Python's memory; called when nothing refers to the value."""

    def free_effort(self, place: KeyPlace, value: Any) -> int:
        """Return the number of parts to free: above 64, UNLINK leaves the value to the background; 0: always."""
        return 1

    def unlink(self, place: KeyPlace, value: Any) -> None:
        """React to the removal of the key, before the value is freed."""

    def copy(self, source: KeyPlace, target: KeyPlace, value: Any) -> Any:
        """Return a copy of the value for COPY; None rejects the command."""
        raise NotImplementedError

    def defrag(self, run: DefragPass, place: KeyPlace, value: Any) -> bool:
        """Compact the value; return True if work remains, after setting `run.cursor`."""
        return False

    def aux_save(self, out: ModuleWriter, when: int) -> None:
        """Write the data of the type that belongs to no key, BEFORE_KEYS or AFTER_KEYS."""

    def aux_load(self, source: ModuleReader, version: int, when: int) -> None:
        """Read what `aux_save` wrote."""
        raise NotImplementedError


def _direct(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


class TypeHandle:
    """A type of a loaded module, as the engine uses it. `guard` calls the module's code."""

    __slots__ = ("encoding_version", "guard", "id", "module", "name", "type")

    def __init__(self, kind: ModuleType, module: str = "", guard: Guard = _direct) -> None:
        self.type = kind
        self.name = kind.name
        self.encoding_version = kind.encoding_version
        self.id = type_id(kind.name, kind.encoding_version)
        self.module = module
        self.guard = guard

    def overrides(self, method: str) -> bool:
        """Return whether the module's class defines a method itself."""
        return getattr(type(self.type), method) is not getattr(ModuleType, method)

    # -- RDB -----------------------------------------------------------------------------------------

    def save(self, out: RdbWriter, value: Any, place: KeyPlace) -> None:
        """Write a value with the number of its type and the end mark (rdbSaveObject)."""
        out.length(self.id)
        self.guard(self.type.rdb_save, ModuleWriter(out, place), value)
        out.length(0)

    def load(self, reader: RdbReader, version: int, place: KeyPlace) -> ModuleValue:
        """Read a value after the number of its type; raise Corrupt if the module rejects it (rdbLoadObject)."""
        try:
            value = self.guard(self.type.rdb_load, ModuleReader(reader, place), version)
        except ModuleFailure as error:
            raise Corrupt(f"the type {self.name} cannot load the value: {error}", self._refusal()) from None
        if value is None:
            raise Corrupt(f"the type {self.name} rejects the value", self._refusal())
        self._check_end(reader, "module data")
        return ModuleValue(self, value)

    def _refusal(self) -> str:
        # rdb.c: rdbLoadObject
        return (f"The RDB file contains module data for the module type '{self.module}', that the responsible module "
                "is not able to load. Check for modules log above for additional clues.")  # fmt: skip

    def _check_end(self, reader: RdbReader, what: str) -> None:
        if reader.length() != 0:
            text = (f"The RDB file contains {what} for the module '{self.module}' that is not terminated by the proper "
                    "module value EOF marker")  # fmt: skip
            raise Corrupt(f"the type {self.name} left a part of the value", text)

    def save_aux(self, out: RdbWriter, opcode: int, when: int) -> None:
        """Write the type's data without a key, if it has any for this moment (rdbSaveSingleModuleAux)."""
        if not self.type.aux_save_triggers & when or not self.overrides("aux_save"):
            return
        out.byte(opcode)
        out.length(self.id)
        out.length(2)
        out.length(when)
        self.guard(self.type.aux_save, ModuleWriter(out, NOWHERE), when)
        out.length(0)

    def load_aux(self, reader: RdbReader, version: int, when: int) -> None:
        """Read what `save_aux` wrote, after `when`; raise Corrupt if the module rejects it."""
        if not self.overrides("aux_load"):
            text = f"The RDB file contains module AUX data, but the module '{self.name}' doesn't seem to support it."
            raise Corrupt(f"the type {self.name} loads no data without a key", text)
        try:
            self.guard(self.type.aux_load, ModuleReader(reader, NOWHERE), version, when)
        except ModuleFailure as error:
            raise Corrupt(f"the type {self.name} cannot load its data without a key: {error}") from None
        self._check_end(reader, "module AUX data")


class ModuleValue(SizedValue):
    """The value of a key of a module's type: `value` is the module's object."""

    __slots__ = ("type", "value")
    # The containers of the values of other types; code that looks for them finds none.
    listpack = intset = table = None

    def __init__(self, kind: TypeHandle, value: Any) -> None:
        self.charge = 0
        self.type = kind
        self.value = value

    def __del__(self) -> None:
        kind = getattr(self, "type", None)
        if kind is not None and kind.overrides("free"):
            try:
                kind.guard(kind.type.free, self.value)
            except Exception:  # logged by the guard
                return

    def encoding(self) -> str:
        """Return the encoding that OBJECT ENCODING shows for all module values."""
        return "raw"

    def check(self) -> None:
        """Assert that the value has a type."""
        assert isinstance(self.type, TypeHandle)

    def size(self, samples: int = 0) -> int:
        """Return the bytes of the value, as the module reports them; 0 if it fails."""
        try:
            found = self.type.guard(self.type.type.mem_usage, self.value, samples)
        except ModuleFailure:
            return 0
        return found if type(found) is int and 0 <= found < 1 << 62 else 0

    def free_effort(self, place: KeyPlace = NOWHERE) -> int:
        """Return the number of parts to free; the largest number for "always in the background"."""
        try:
            found = self.type.guard(self.type.type.free_effort, place, self.value)
        except ModuleFailure:
            return 1
        return sys.maxsize if found == 0 else found if type(found) is int and found > 0 else 1

    def unlinked(self, place: KeyPlace) -> None:
        """Notify the module that the key was removed."""
        if self.type.overrides("unlink"):
            try:
                self.type.guard(self.type.type.unlink, place, self.value)
            except ModuleFailure:  # logged by the guard
                return

    def copy(self, source: KeyPlace, target: KeyPlace) -> ModuleValue:
        """Return a copy; raise CommandError with Redis's texts if there is none (moduleTypeDupOrReply)."""
        if not self.type.overrides("copy"):
            raise CommandError("not supported for this module key")
        twin = self.type.guard(self.type.type.copy, source, target, self.value)
        if twin is None:
            raise CommandError("module key failed to copy")
        return ModuleValue(self.type, twin)

    def digest_of(self, place: KeyPlace) -> bytes | None:
        """Return the 20 bytes of the module's digest, None if the type has none (debug.c: xorObjectDigest)."""
        if not self.type.overrides("digest"):
            return None
        digest = Digest()
        self.type.guard(self.type.type.digest, digest, place, self.value)
        return digest.total

    def defrag(self, place: KeyPlace, cursor: Any, stop: Callable[[], bool]) -> tuple[bool, DefragPass]:
        """Let the module compact the value; return whether work remains, and the state of the pass."""
        run = DefragPass(cursor, stop)
        try:
            return self.type.guard(self.type.type.defrag, run, place, self.value) is True, run
        except ModuleFailure:
            return False, run

    def rewrite(self, place: KeyPlace) -> list[list[bytes]] | None:
        """Return the commands that create the value; None if the log should contain a RESTORE."""
        if not self.type.overrides("aof_rewrite"):
            return None
        commands: list[list[bytes]] = self.type.guard(_commands, self.type.type, place, self.value)
        return commands


def _commands(kind: ModuleType, place: KeyPlace, value: Any) -> list[list[bytes]]:
    """Return the commands of `aof_rewrite`, with their arguments as bytes."""
    commands = [[argument(word) for word in words] for words in kind.aof_rewrite(place, value)]
    if any(not words for words in commands):
        raise ValueError("a command without a name")
    return commands


def argument(word: Any) -> bytes:
    """Return an argument of a command as bytes: bytes, text, or a number."""
    if isinstance(word, bytes | bytearray | memoryview):
        return bytes(word)
    if isinstance(word, str):
        return word.encode("utf-8", "surrogateescape")
    if isinstance(word, float | int) and not isinstance(word, bool):
        return repr(word).encode()
    raise TypeError(f"an argument of a command is bytes, text or a number, not {type(word).__name__}")


def find_type(types: Mapping[int, TypeHandle], number: int) -> TypeHandle | None:
    """Return the loaded type with the name in `number`, in any version (moduleTypeLookupModuleByID)."""
    return types.get(number >> 10)
