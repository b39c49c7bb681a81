"""Write the asyncio API (src/rillet/store/aio) from the synchronous API: `python -m tools.make_aio [--check]`

The synchronous module is the only source; a test fails if a generated file differs from what this program writes.

    store/stream.py    class Stream                    aio/stream.py    class AsyncStream
                       def length(self)                                 async def length(self)
                       self.store.run(...)                              await self.store.run(...)
                       for page in self._scan(...)                      async for page in self._scan(...)
                       def last_id(self), a property                    async def last_id(self), a method
                       def __iter__(self)                               def __aiter__(self)

**What becomes a coroutine.** A function that runs a command, and in turn each function that calls such a function. The
class of an object is known from annotations (`store: Store`), constructors (`group = Group(...)`) and, for loop
variables, from the names in VARIABLES. mypy finds what this program misses: a coroutine in place of its result.

**What is copied.** Each class and function that needs an asyncio form; its comments and docstrings stay. Everything
else is imported from the synchronous module.

**What is left out.** Operators, which cannot wait (`len(stream)`, `stream[id]`, `x in s`): use the named method.
Views (`Hash.items()`): use `scan` or `get_all`. OMITTED has the list. Methods in THREADED compute for long and run in a
worker thread.

Edits keep the source's lines. Continuation lines move with the bracket to which they are aligned, and a signature that
becomes too long is wrapped again.
"""

from __future__ import annotations

from pathlib import Path

from tools.make_aio.config import FOLDER, MODULES
from tools.make_aio.program import Program
from tools.make_aio.writer import Module


def generated() -> dict[Path, str]:
    """Return the text of each asyncio module, by its path."""
    program = Program()
    return {
        FOLDER / f"{MODULES[name].replace('.', '/')}.py": Module(program, source).text()
        for name, source in program.sources.items()
    }


__all__ = ["FOLDER", "MODULES", "generated"]
