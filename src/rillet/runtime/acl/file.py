"""The text of an ACL file: one `user` line for each user.

    user default on nopass sanitize-payload ~* &* +@all
    user alice on sanitize-payload #2bd806...c6ec ~orders:* resetchannels -@all +@read

Empty lines are ignored, and in newest Redis also comments (`#`). One mistake rejects the whole file; the error lists
all of them (acl.c: ACLLoadFromFile).
"""

from __future__ import annotations

from rillet.errors import CommandError
from rillet.runtime.acl.commands import CommandSet
from rillet.runtime.acl.rules import RuleError, UnmatchedParenthesis, c_string, has_blanks, merged
from rillet.runtime.acl.user import User

_NOTHING_CHANGED = "WARNING: ACL errors detected, no change to the previously active ACL rules was performed"
_COMMENTS = 88


def _text(raw: bytes) -> str:
    return c_string(raw).decode("utf-8", "surrogateescape")


def read_users(text: bytes, file_name: str, commands: CommandSet, all_channels: bool) -> dict[bytes, User]:
    """Return the users of an ACL file by name; CommandError with all mistakes."""
    users: dict[bytes, User] = {}
    mistakes: list[str] = []
    for number, raw in enumerate(text.split(b"\n"), 1):
        line = c_string(raw).strip(b" \t\r\n")
        if not line or (line.startswith(b"#") and commands.compat.knows(_COMMENTS)):
            continue
        words = line.split(b" ")
        where = f"{file_name}:{number}"
        if words[0] != b"user" or len(words) < 2:
            mistakes.append(f"{where} should start with user keyword followed by the username. ")
        elif has_blanks(words[1]):
            mistakes.append(f"'{where}: username '{_text(words[1])}' contains invalid characters. ")
        elif words[1] in users:
            mistakes.append(f"WARNING: Duplicate user '{_text(words[1])}' found on line {number}. ")
        else:
            user = users[words[1]] = User(words[1], commands, all_channels)
            mistakes += _apply(user, words[2:], where, all_channels)
    if mistakes:
        raise CommandError("".join(mistakes) + _NOTHING_CHANGED)
    return users


def _apply(user: User, words: list[bytes], where: str, all_channels: bool) -> list[str]:
    """Apply the rules of a line; return the mistakes. Only the first syntax error is listed."""
    try:
        rules = merged(words, not user.commands.compat.knows(72))
    except UnmatchedParenthesis:
        return [f"{where}: Unmatched parenthesis in selector definition."]
    mistakes: list[str] = []
    has_syntax_error = False
    for rule in (word.strip(b"\t\r\n") for word in rules):
        try:
            user.apply((rule,), all_channels)
        except RuleError as error:
            if error.unknown_name:
                mistakes.append(f"{where}: Error in applying operation '{_text(rule)}': {error.args[0]}. ")
            elif not has_syntax_error:
                has_syntax_error = True
                mistakes.append(f"{where}: {error.args[0]}. ")
    return mistakes
