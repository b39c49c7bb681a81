"""Arguments that no log may show: passwords and ACL rules (Redis: networking.c, redactClientCommandArgument).

SLOWLOG and MONITOR show `(redacted)` in their place. Redis marks these arguments while it runs the command; here a
table finds them by the command's name, so that a command that fails is treated in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rillet.structs.argument_spans import ArgumentSpans
from rillet.types.compat import Compat

REDACTED = b"(redacted)"
_SECRET_SETTINGS = frozenset(
    (b"masteruser", b"masterauth", b"requirepass", b"tls-key-file-pass", b"tls-client-key-file-pass",
     b"primaryuser", b"primaryauth")
)  # fmt: skip


def _all_after_name(argv: list[bytes]) -> Iterable[int]:
    return range(2, len(argv))


def _passwords_of_auth(argv: list[bytes]) -> Iterable[int]:
    return range(1, min(len(argv), 3))


def _passwords_of_hello(argv: list[bytes]) -> Iterable[int]:
    at = 2
    while at < len(argv):
        word, left = argv[at].lower(), len(argv) - at - 1
        if word == b"auth" and left >= 2:
            yield at + 1
            yield at + 2
            at += 3
        elif word == b"setname" and left:
            at += 2
        else:
            return


def _secret_settings(argv: list[bytes]) -> Iterable[int]:
    return [at + 1 for at in range(2, len(argv) - 1, 2) if argv[at].lower() in _SECRET_SETTINGS]


def _passwords_of_migrate(argv: list[bytes]) -> Iterable[int]:
    at = 6
    while at < len(argv):
        word, left = argv[at].lower(), len(argv) - at - 1
        if word == b"auth" and left:
            yield at + 1
            at += 1
        elif word == b"auth2" and left >= 2:
            yield at + 1
            yield at + 2
            at += 2
        elif word == b"keys":
            return
        at += 1


_SECRETS: dict[str, Callable[[list[bytes]], Iterable[int]]] = {
    "acl|setuser": _all_after_name, "acl|deluser": _all_after_name, "acl|getuser": _all_after_name,
    "auth": _passwords_of_auth, "hello": _passwords_of_hello, "config|set": _secret_settings,
    "migrate": _passwords_of_migrate,
}  # fmt: skip
_SINCE_7_2 = ("acl|deluser", "acl|getuser")


def redact(fullname: str, words: ArgumentSpans, compat: Compat) -> None:
    """Put `(redacted)` in place of the secrets of a command that has some (registry.HAS_SECRETS). O(arguments)"""
    if fullname not in _SINCE_7_2 or compat.knows(72):
        for at in _SECRETS[fullname](words.to_list()):
            words.put(at, REDACTED)
