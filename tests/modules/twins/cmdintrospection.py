"""The twin of Redis's tests/modules/cmdintrospection.c: the declaration of a command like XADD."""

from __future__ import annotations

from rillet.modules import Context, Module
from rillet.runtime.registry import TABLE, load_commands

module = Module("cmdintrospection", 1)
load_commands()
XADD = TABLE[b"xadd"]


@module.command(
    "cmdintrospection.xadd",
    arity=XADD.arity,
    flags="write deny-oom random fast",
    keys=XADD.keys,
    since=XADD.since,
    complexity=XADD.complexity,
    syntax=XADD.syntax,
    access="RW update",
    tips="nondeterministic_output",
)
def xadd(context: Context, argv: list[bytes]) -> str:
    return "OK"


xadd.__doc__ = XADD.summary
module.commands[0] = module.commands[0]._replace(summary=XADD.summary)
