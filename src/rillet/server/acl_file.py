"""The users of a server at its start, and the ACL file.

Users are defined either by `user` lines of the configuration or by the file that `aclfile` names, not by both. The file
is written beside its old content, synced and renamed, so a power loss leaves the old or the new users.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rillet.errors import CommandError, RilletError
from rillet.persistence.disk import REAL, Disk, write_file
from rillet.runtime.acl.rules import RuleError, UnmatchedParenthesis, c_string, has_blanks
from rillet.runtime.engine import Engine
from rillet.server.log_lines import NOTICE, WARNING, say

if TYPE_CHECKING:
    from rillet.runtime.command_engine import CommandEngine
    from rillet.server.redis_conf import UserLine


class UsersError(RilletError):
    """The users of the configuration or of the ACL file cannot be loaded."""


def load_users(engine: Engine, users: tuple[UserLine, ...]) -> None:
    """Define the users of the configuration or of the ACL file, after all modules are loaded; UsersError."""
    if engine.settings.aclfile:
        if users:
            raise UsersError("users are defined by `user` lines and by an ACL file: use one of both")
        try:
            engine.acl.load(read(path_of(engine), engine.settings.aclfile), engine.settings.aclfile)
        except CommandError as error:
            raise UsersError(f"the ACL file has errors: {str(error).removeprefix('ERR ')}") from None
    defined: set[bytes] = set()
    for line in users:
        if line.name in defined:
            name = line.name.decode("utf-8", "replace")
            raise _invalid(line, f"'{name}': Duplicate user found. A user can only be defined once in config files")
        defined.add(line.name)
        _define(engine, line)


def _define(engine: Engine, line: UserLine) -> None:
    if has_blanks(line.name):
        raise _invalid(line, "Spaces not allowed in ACL usernames")
    try:
        engine.acl.add_configured(line.name, list(line.rules))
    except UnmatchedParenthesis as error:
        raise _invalid(line, f"'{_shown(line.rules[error.at])}': {error.args[0]}") from None
    except RuleError as error:
        raise _invalid(line, f"'{_shown(error.args[1])}': {error.args[0]}") from None
    if not engine.acl.users[line.name].enabled:
        say(f"The user '{_shown(line.name)}' is disabled: its rules lack `on`", NOTICE)


def _invalid(line: UserLine, reason: str) -> UsersError:
    return UsersError(f"{line.place}: Error in user declaration {reason}")


def _shown(raw: bytes) -> str:
    return c_string(raw).decode("utf-8", "replace")


# -- the file ----------------------------------------------------------------------------------------


def path_of(engine: CommandEngine) -> Path:
    """Return the path of the ACL file; it is relative to the setting `dir`."""
    return Path(engine.settings.dir) / str(engine.settings.aclfile)


def read(path: Path, name: str) -> bytes:
    """Return the text of the ACL file; CommandError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise CommandError(f"Error loading ACLs, opening file '{name}': {error.strerror}") from None


def write(path: Path, text: bytes, disk: Disk = REAL) -> None:
    """Replace the text of the ACL file in one step; CommandError."""
    new = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    try:
        write_file(disk, new, [text])
        disk.rename(new, path)
        disk.sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            disk.remove(new)
        say(f"ACL SAVE cannot write {path}: {error.strerror}", WARNING)
        raise CommandError(
            "There was an error trying to save the ACLs. Please check the server logs for more information"
        ) from None
