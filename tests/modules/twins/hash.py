"""The twin of Redis's tests/modules/hash.c: RM_HashSet with its flags, in terms of the commands of hashes."""

from __future__ import annotations

from rillet.modules import CommandError, Context, Module, WrongType

module = Module("hash", 1)


@module.command("hash.set", arity=-5, flags="write", keys=(1, 1, 1))
def hash_set(context: Context, argv: list[bytes]) -> int:
    if len(argv) % 2 == 0 or len(argv) > 11:
        raise CommandError("wrong number of arguments for 'hash.set' command")
    key, flags = argv[1], argv[2]
    if context.key(key).type not in ("hash", "none"):
        raise WrongType()
    changed = 0
    for field, value in zip(argv[3::2], argv[4::2], strict=True):
        exists = context.call("HEXISTS", key, field)
        if (b"x" in flags and not exists) or (b"n" in flags and exists):
            continue
        if value.lower() == b":delete:":
            changed += context.call("HDEL", key, field)
            continue
        context.call("HSET", key, field, value)
        changed += b"a" in flags or exists
    return changed
