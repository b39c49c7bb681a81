"""MEMORY: the size of values and of the whole data (Redis: object.c).

The sizes are those that `used_memory` contains (keyspace/memory_usage.py). They are known exactly, so MEMORY USAGE
accepts SAMPLES and measures nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rillet.commands.arguments import integer, syntax_error
from rillet.commands.help_texts import declare_help
from rillet.commands.server import command
from rillet.keyspace.memory_usage import key_bytes
from rillet.protocol.reply_writer import ReplyWriter
from rillet.runtime.memory import human
from rillet.runtime.session import Session

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine

_FEW = 5 * 1024 * 1024  # bytes below which a diagnosis means nothing (object.c: getMemoryDoctorReport)


@command("memory|usage", arity=-3, flags="readonly", keys=(2, 2, 1), since="4.0.0",
         syntax="key [SAMPLES count]", complexity="O(1)")
def memory_usage(session: Session, argv: list[bytes]) -> None:
    """Return the bytes that a key and its value take in this process."""
    for at in range(3, len(argv), 2):
        if argv[at].lower() != b"samples" or at + 1 == len(argv) or integer(argv[at + 1]) < 0:
            raise syntax_error()
    # Redis finds expired keys too, and counts neither a hit nor a miss.
    size = key_bytes(session.db, argv[2])
    if size < 0:
        session.out.null()
    else:
        session.out.integer(size)


@command("memory|stats", arity=2, flags="", keys=(0, 0, 0), since="4.0.0", complexity="O(databases)")
def memory_stats(session: Session, argv: list[bytes]) -> None:
    """Return the memory use of this process."""
    _write(session.out, session.engine.memory.stats())


def _write(out: ReplyWriter, fields: dict[str, Any]) -> None:
    out.map(len(fields))
    for name, value in fields.items():
        out.bulk(name.encode())
        if isinstance(value, dict):
            _write(out, value)
        elif isinstance(value, float):
            out.double(value)
        else:
            out.integer(value)


@command("memory|doctor", arity=2, flags="", keys=(0, 0, 0), since="4.0.0", complexity="O(databases)")
def memory_doctor(session: Session, argv: list[bytes]) -> None:
    """Return what is unusual about the memory use of this process."""
    measured = session.engine.memory.measure()
    if measured["used"] < _FEW:
        text = "The data is smaller than 5 MB: too small for a diagnosis."
    else:
        found = list(_findings(session.engine, measured))
        text = "\n".join(f" * {line}" for line in found) if found else "The memory use has no known problem."
    session.out.verbatim(text.encode() + b"\n")


def _findings(engine: CommandEngine, measured: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each problem, with its remedy."""
    used, peak, limit = measured["used"], measured["peak"], engine.settings.maxmemory
    idle = measured["resident"] - used
    if peak > 1.5 * used:
        yield (f"Peak: the data was {human(peak)} large and is {human(used)} now. The process may keep the memory in "
               "between; it uses that memory again before it asks for more.")  # fmt: skip
    if measured["ratio"] > 1.4 and idle > 10 * _FEW:
        yield (f"Resident size: {human(idle)} of the process are not data. About 40 MB belong to the interpreter; if "
               "the rest is large, set `activedefrag yes`, or restart the process.")  # fmt: skip
    sessions = sum(1 for session in engine.sessions.values() if not session.trusted)
    if sessions and measured["clients"] // sessions > 200 * 1024:
        yield (f"Clients: their buffers have {human(measured['clients'])}. CLIENT LIST shows which ones (omem, qbuf); "
               "`client-output-buffer-limit` and `maxmemory-clients` limit them.")  # fmt: skip
    if limit and used > limit:
        yield (f"Limit: the data exceeds maxmemory ({human(limit)}). The policy {engine.settings.maxmemory_policy} "
               "finds no keys to evict, or they are still being freed.")  # fmt: skip


@command("memory|malloc-stats", arity=2, flags="", keys=(0, 0, 0), since="4.0.0", complexity="O(1)")
def memory_malloc_stats(session: Session, argv: list[bytes]) -> None:
    """Reply that the allocator has no statistics."""
    session.out.verbatim(b"Stats not supported for the current allocator")


@command("memory|purge", arity=2, flags="", keys=(0, 0, 0), since="4.0.0", complexity="O(objects)")
def memory_purge(session: Session, argv: list[bytes]) -> None:
    """Return free memory to the operating system, as far as the allocators can."""
    session.engine.lazyfree.step(2**62)
    gc.collect()
    _trim_heap()
    session.out.ok()


def _trim_heap() -> None:
    """Call glibc's malloc_trim; other C libraries lack it."""
    try:
        from ctypes import CDLL

        CDLL(None).malloc_trim(0)
    except (ImportError, AttributeError, OSError, TypeError):
        return


declare_help("memory", "server", "4.0.0")
