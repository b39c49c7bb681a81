"""The ACL commands: users.py defines and shows users, inspection.py shows categories, decisions and the log."""

from __future__ import annotations

from functools import partial

from rillet.runtime.registry import command as _command

command = partial(_command, group="server")
# The flags of the subcommands that any user may need, and of those for administrators.
FLAGS = "noscript loading stale"
ADMIN = "admin noscript loading stale"
