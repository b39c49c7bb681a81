"""ACL CAT, DRYRUN, GENPASS and LOG (Redis: acl.c)."""

from __future__ import annotations

from secrets import token_hex

from rillet.commands.acl import ADMIN, FLAGS, command
from rillet.commands.arguments import integer, subcommand_error, text
from rillet.commands.help_texts import declare_help
from rillet.commands.replies import write_bulks
from rillet.commands.server.info import find_subcommand
from rillet.errors import CommandError
from rillet.runtime.acl.log import LogEntry
from rillet.runtime.session import Session

_MOST_BITS = 4096
_SHOWN = 10  # entries of ACL LOG without an argument


@command("acl|cat", arity=-2, flags=FLAGS, since="6.0.0", syntax="[category]", complexity="O(N) for N commands")
def acl_cat(session: Session, argv: list[bytes]) -> None:
    """List the categories of commands, or the commands of one category."""
    if len(argv) > 3:
        raise subcommand_error(argv)
    commands = session.engine.acl.commands()
    if len(argv) == 2:
        write_bulks(session.out, [name.encode() for name in commands.categories])
        return
    category = text(argv[2]).lower()
    if category not in commands.categories:
        raise CommandError(f"Unknown category '{text(argv[2][:128])}'")
    write_bulks(session.out, commands.names_of(category))


@command("acl|genpass", arity=-2, flags=FLAGS, since="6.0.0", syntax="[bits]", complexity="O(1)")
def acl_genpass(session: Session, argv: list[bytes]) -> None:
    """Return a random password in hexadecimal digits, of 256 bits or of the given size."""
    if len(argv) > 3:
        raise subcommand_error(argv)
    bits = integer(argv[2]) if len(argv) == 3 else 256
    if not 0 < bits <= _MOST_BITS:
        raise CommandError(
            "ACL GENPASS argument must be the number of bits for the output password, a positive number up to "
            f"{_MOST_BITS}"
        )
    digits = (bits + 3) // 4
    session.out.bulk(token_hex((digits + 1) // 2)[:digits].encode())


@command(
    "acl|dryrun", arity=-4, flags=ADMIN, since="7.0.0", syntax="username command [arg [arg ...]]", complexity="O(1)"
)
def acl_dryrun(session: Session, argv: list[bytes]) -> None:
    """Return whether a user may run a command, without running it."""
    engine, line = session.engine, argv[3:]
    user = engine.acl.users.get(argv[2])
    if user is None:
        raise CommandError(f"User '{text(argv[2])}' not found")
    entry = find_subcommand(engine, line)
    if entry is None:
        raise CommandError(f"Command '{text(argv[3])}' not found")
    if not entry.accepts_in(len(line), engine.settings.compat):
        raise CommandError(f"wrong number of arguments for '{entry.fullname}' command")
    reason: str = engine.acl.dry_run(user, entry, line, session)
    if reason:
        session.out.bulk(reason.encode("utf-8", "surrogateescape"))
    else:
        session.out.ok()


# -- ACL LOG ----------------------------------------------------------------------------------------


@command("acl|log", arity=-2, flags=ADMIN, since="6.0.0", syntax="[count | RESET]", complexity="O(N) for N entries")
def acl_log(session: Session, argv: list[bytes]) -> None:
    """List the newest denied calls and failed logins, or forget them."""
    if len(argv) > 3:
        raise subcommand_error(argv)
    log = session.engine.acl.log
    if len(argv) == 3 and argv[2].lower() == b"reset":
        log.entries.clear()
        session.out.ok()
        return
    count = max(integer(argv[2]), 0) if len(argv) == 3 else _SHOWN
    entries = log.entries[:count]
    session.out.array(len(entries))
    for entry in entries:
        _write_entry(session, entry)


def _write_entry(session: Session, entry: LogEntry) -> None:
    out, engine = session.out, session.engine
    identified = engine.settings.compat.knows(72)
    out.map(10 if identified else 7)
    out.bulk(b"count")
    out.integer(entry.count)
    for name, value in ((b"reason", entry.reason), (b"context", entry.context), (b"object", entry.item),
                        (b"username", entry.user)):  # fmt: skip
        out.bulk(name)
        out.bulk(value)
    out.bulk(b"age-seconds")
    out.double((engine.clock.now_ms() - entry.updated_ms) / 1000)
    out.bulk(b"client-info")
    out.bulk(entry.client)
    if identified:
        for name, number in ((b"entry-id", entry.entry_id), (b"timestamp-created", entry.created_ms),
                             (b"timestamp-last-updated", entry.updated_ms)):  # fmt: skip
            out.bulk(name)
            out.integer(number)


declare_help("acl", "server", "6.0.0")
