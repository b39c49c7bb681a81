"""The twin of Redis's tests/modules/defragtest.c: it counts the steps of the active defragmentation."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rillet.modules import CommandError, Context, DefragPass, KeyPlace, Module, ModuleType

module = Module("defragtest", 1)
COUNTERS = (
    "datatype_attempts",
    "datatype_defragged",
    "datatype_resumes",
    "datatype_wrong_cursor",
    "global_attempts",
    "global_defragged",
)
counts: Counter[str] = Counter()
last = {"cursor": 0, "strings": 0}


class Fragments:
    """Blocks of one size; `step` is the number of blocks after which a pass stops."""

    def __init__(self, count: int, size: int, step: int) -> None:
        self.blocks = [bytes(size)] * count
        self.step = step


@module.type
class FragmentsType(ModuleType):
    name = "frag_type"

    def free_effort(self, place: KeyPlace, value: Fragments) -> int:
        return len(value.blocks)

    def mem_usage(self, value: Fragments, samples: int) -> int:
        return sum(len(block) + 8 for block in value.blocks[:1]) * len(value.blocks)

    def defrag(self, run: DefragPass, place: KeyPlace, value: Fragments) -> bool:
        assert place.database != -1
        at, steps = run.cursor or 0, 0
        counts["datatype_resumes"] += at > 0
        counts["datatype_wrong_cursor"] += at != last["cursor"]
        counts["datatype_attempts"] += 1
        while at < len(value.blocks):
            counts["datatype_attempts"] += 1
            value.blocks[at] = bytes(value.blocks[at])
            at += 1
            steps += 1
            if (value.step and steps > value.step) or (at % 64 == 0 and run.should_stop):
                run.cursor = last["cursor"] = at
                return True
        last["cursor"] = 0
        return False


@module.defrag
def defrag_globals(context: Context) -> None:
    counts["global_attempts"] += last["strings"]


@module.info
def info(context: Context) -> dict[str, dict[str, int]]:
    return {"stats": {name: counts[name] for name in COUNTERS}}


@module.on_load
def load(context: Context, arguments: list[bytes]) -> None:
    if len(arguments) != 1:
        raise CommandError("the number of global strings is missing")
    last["strings"] = int(arguments[0])


@module.command("frag.resetstats", arity=-1, flags="write deny-oom")
def resetstats(context: Context, argv: list[bytes]) -> str:
    counts.clear()
    return "OK"


@module.command("frag.create", arity=5, flags="write deny-oom", keys=(1, 1, 1))
def create(context: Context, argv: list[bytes]) -> Any:
    key = context.key(argv[1])
    if key.exists:
        raise CommandError("key exists")
    key.set(FragmentsType, Fragments(int(argv[2]), int(argv[3]), int(argv[4])))
    return "OK"
