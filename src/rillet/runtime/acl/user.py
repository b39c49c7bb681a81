"""A user: a name, flags, passwords and selectors.

Passwords are kept as the hexadecimal SHA-256 of their bytes. The first selector is the root selector, which rules
outside of parentheses change; it always exists.

A call is permitted if one selector permits all of it. Otherwise the most specific reason counts: a key or a channel
that no selector permits is a better message than a command that one of them lacks (ACLCheckAllUserCommandPerm).
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import Any

from rillet._cython import cython, readonly
from rillet.runtime.acl.command_decision import CommandDecision
from rillet.runtime.acl.commands import CommandSet
from rillet.runtime.acl.key_access import (
    ALL_DATABASES,
    accesses,
    channels_of,
    databases_of,
    has_channels,
    has_keys,
    keys_of,
)
from rillet.runtime.acl.rules import RuleError, c_string
from rillet.runtime.acl.selector import READ, WRITE, Selector, matches_channel
from rillet.runtime.key_specifications import OPTIONS_FROM
from rillet.runtime.registry import Command
from rillet.structs.argument_spans import ArgumentSpans

# Reasons for which a call is denied, from the least to the most specific one.
DENIED_DATABASE = 1
DENIED_COMMAND = 2
DENIED_KEY = 3
DENIED_CHANNEL = 4

_HEXADECIMAL = frozenset(b"0123456789abcdef")
_NO_WORDS = ArgumentSpans()
_ANY = 2**31  # more words than a command has


def hashed(password: bytes) -> bytes:
    """Return the form in which a password is kept."""
    return sha256(password).hexdigest().encode()


def _hash(rule: bytes) -> bytes:
    """Return the hash that a rule names, by itself or by its password; RuleError."""
    if rule[:1] in (b">", b"<"):
        return hashed(rule[1:])
    if len(rule) != 65 or not _HEXADECIMAL.issuperset(rule[1:]):
        raise RuleError(
            "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
        )
    return rule[1:]


@cython.final
@cython.cclass
class User:
    """One user of an engine; `restricted`: some call is not permitted."""

    __slots__ = ("_decisions", "_last_decision", "_last_entry", "commands", "enabled", "name", "no_password",
                 "passwords", "restricted", "sanitize", "selectors")  # fmt: skip
    name: readonly[bytes]
    commands: readonly[CommandSet]
    enabled: readonly[cython.bint]
    no_password: readonly[cython.bint]
    sanitize: readonly[bytes]
    passwords: readonly[list[bytes]]
    selectors: readonly[list[Selector]]
    restricted: readonly[cython.bint]
    _decisions: dict[Command, CommandDecision]
    _last_entry: Command | None
    _last_decision: CommandDecision | None

    def __init__(self, name: bytes, commands: CommandSet, all_channels: bool) -> None:
        self.name = name
        self.commands = commands
        self.enabled = False
        self.no_password = False
        # b"sanitize-payload", b"skip-sanitize-payload" or, in Redis 7.0, neither.
        self.sanitize = b"sanitize-payload" if commands.compat.knows(72) else b""
        self.passwords = []
        self.selectors = [Selector(commands, all_channels)]
        self.restricted = True
        self._forget_decisions()

    def copy(self) -> User:
        """Return an independent copy."""
        other = User(self.name, self.commands, False)
        other.copy_from(self)
        return other

    def copy_from(self, other: User) -> None:
        """Copy everything but the name from another user (ACLCopyUser)."""
        self.enabled, self.no_password, self.sanitize = other.enabled, other.no_password, other.sanitize
        self.passwords = list(other.passwords)
        self.selectors = [selector.copy() for selector in other.selectors]
        self._update()

    def use(self, commands: CommandSet) -> None:
        """Apply the rules again, after commands came or went (modules)."""
        self.commands = commands
        for selector in self.selectors:
            selector.use(commands)
        self._update()

    def _update(self) -> None:
        """Follow a change of the rules."""
        self._forget_decisions()
        self.restricted = not any(selector.unlimited for selector in self.selectors)

    def _forget_decisions(self) -> None:
        self._decisions = {}
        # The last command: clients repeat a command.
        self._last_entry = None
        self._last_decision = None

    # -- rules ---------------------------------------------------------------------------------------

    def apply(self, rules: Iterable[bytes], all_channels: bool) -> None:
        """Change the user by rules; all_channels: what new selectors permit. RuleError has the rule in `args[1]`."""
        try:
            for rule in rules:
                try:
                    self._apply(rule, all_channels)
                except RuleError as error:
                    error.args = (*error.args, rule)
                    raise
        finally:
            self._update()

    def _apply(self, rule: bytes, all_channels: bool) -> None:
        """Change the user by one rule (ACLSetUser)."""
        name = c_string(rule).lower()
        if not rule:
            return
        if name in (b"on", b"off"):
            self.enabled = name == b"on"
        elif name in (b"skip-sanitize-payload", b"sanitize-payload"):
            self.sanitize = name
        elif name in (b"nopass", b"resetpass"):
            self.no_password, self.passwords = name == b"nopass", []
        elif name.startswith((b">", b"#")):
            password = _hash(rule)
            if password not in self.passwords:
                self.passwords.append(password)
            self.no_password = False
        elif name.startswith((b"<", b"!")):
            password = _hash(rule)
            if password not in self.passwords:
                raise RuleError("The password you are trying to remove from the user does not exist")
            self.passwords.remove(password)
        elif rule.startswith(b"(") and rule.endswith(b")"):
            self.selectors.append(Selector.parse(rule, self.commands, all_channels))
        elif name == b"clearselectors":
            del self.selectors[1:]
        elif name == b"reset":
            self.reset(all_channels)
        else:
            self.selectors[0].apply(rule)

    def reset(self, all_channels: bool) -> None:
        """Remove all permissions and passwords."""
        self.enabled = self.no_password = False
        self.passwords = []
        self.sanitize = b"sanitize-payload"
        self.selectors = [Selector(self.commands, all_channels)]
        self._update()

    # -- passwords -----------------------------------------------------------------------------------

    def accepts(self, password: bytes) -> bool:
        """Return whether a client with this password may log in (ACLCheckUserCredentials)."""
        if not self.enabled:
            return False
        if self.no_password:
            return True
        given = hashed(password)
        found = False
        for one in self.passwords:  # every password is compared, so that the time does not depend on the position
            found |= compare_digest(given, one)
        return found

    # -- description ---------------------------------------------------------------------------------

    def flags(self) -> list[bytes]:
        """Return the flags in the order in which Redis shows them."""
        words = [b"on" if self.enabled else b"off"]
        if self.no_password:
            words.append(b"nopass")
        if self.sanitize and not self.commands.compat.valkey:
            words.append(self.sanitize)
        return words

    def describe(self) -> bytes:
        """Return the rules that create this user (ACLDescribeUser)."""
        words = self.flags() + [b"#" + one for one in self.passwords]
        words.append(self.selectors[0].describe())
        return b" ".join(words + [b"(" + selector.describe() + b")" for selector in self.selectors[1:]])

    # -- decisions -----------------------------------------------------------------------------------

    @cython.ccall
    def surely_permits(self, entry: Command, words: ArgumentSpans) -> cython.bint:
        """Return True if a call is permitted; about another call, `denial` decides. O(keys * patterns)"""
        decision: CommandDecision | None = self._last_decision
        if entry is not self._last_entry:
            decision = self._decisions.get(entry)
            if decision is None:
                decision = self._decisions[entry] = self._decide(entry)
            self._last_entry = None  # an exception between these lines must not pair a command with another's decision
            self._last_decision = decision
            self._last_entry = entry
        assert decision is not None
        return decision.permits(words)

    def _decide(self, entry: Command) -> CommandDecision:
        """Return what the rules say about all calls of a command."""
        compat = self.commands.compat
        selectors = [
            one for one in self.selectors
            if one.all_dbs and (one.all_channels or not has_channels(entry))
            and not _denial(one, entry, _NO_WORDS, 0, [])[0]
        ]  # fmt: skip
        if selectors and (not has_keys(entry) or any(one.all_keys for one in selectors)):
            return CommandDecision(True)
        fixed = OPTIONS_FROM.get(entry.fullname, _ANY) - 1
        granted = accesses(entry, [b""] * min(fixed, 3), compat)
        patterns = [[one.patterns_for(access) for access in granted] for one in selectors]
        wide = [[one.patterns_for(READ | WRITE)] for one in selectors]
        return CommandDecision(False).require(entry, fixed, patterns, wide)

    def denial(self, entry: Command, words: ArgumentSpans, db: int) -> tuple[int, int]:
        """Return why a call is not permitted, and the position of the word to blame; (0, 0) if it is permitted."""
        reason, at = 0, 0
        keys: list[tuple[int, int]] | None = None
        for selector in self.selectors:
            if not selector.all_keys and keys is None:
                keys = keys_of(entry, words, self.commands.compat)
            denied, word = _denial(selector, entry, words, db, keys or [])
            if not denied:
                return 0, 0
            if denied > reason or (denied == reason and word > at):
                reason, at = denied, word
        return reason, at

    def reads_every_key(self, entry: Command, words: ArgumentSpans, db: int) -> bool:
        """Return whether a selector permits the call and also to read all keys (for SORT with BY or GET)."""
        keys = keys_of(entry, words, self.commands.compat)
        return any(
            selector.permits_every_key(READ) and not _denial(selector, entry, words, db, keys)[0]
            for selector in self.selectors
        )

    # -- channels ------------------------------------------------------------------------------------

    def lost_channels(self, before: User) -> list[bytes] | None:
        """Return the channel patterns that are left if `before` had others, else None (getUpcomingChannelList)."""
        if any(selector.all_channels for selector in self.selectors):
            return None
        left = [pattern for selector in self.selectors for pattern in selector.channels]
        for selector in before.selectors:
            if selector.all_channels or not set(left).issuperset(selector.channels):
                return left
        return None


def may_keep(left: list[bytes], subscriptions: Any) -> bool:
    """Return whether these patterns permit all subscriptions of a session (ACLShouldKillPubsubClient)."""
    return (
        all(matches_channel(left, pattern, True) for pattern in subscriptions.patterns)
        and all(matches_channel(left, channel, False) for channel in subscriptions.channels)
        and all(matches_channel(left, channel, False) for channel in subscriptions.shards)
    )


def _denial(
    selector: Selector, entry: Command, words: ArgumentSpans, db: int, keys: list[tuple[int, int]]
) -> tuple[int, int]:
    """Return why a selector does not permit a call, and the word to blame (ACLSelectorCheckCmd)."""
    if not selector.all_dbs:
        at = _denied_database(selector, entry, words, db)
        if at >= 0:
            return DENIED_DATABASE, at
    if not entry.no_auth and not selector.permits_command(entry.index, words):
        return DENIED_COMMAND, 0
    if not selector.all_keys:
        for at, flags in keys:
            if not selector.permits_key(words.get(at), flags):
                return DENIED_KEY, at
    if not selector.all_channels:
        for at, is_pattern in channels_of(entry, words.count):
            if not selector.permits_channel(words.get(at), is_pattern):
                return DENIED_CHANNEL, at
    return 0, 0


def _denied_database(selector: Selector, entry: Command, words: ArgumentSpans, db: int) -> int:
    """Return the word that names a database that is not permitted, 0 for the current one, -1 if all are permitted."""
    commands = selector.commands
    named = databases_of(entry, words, commands.databases)
    if named is not None:
        for at in named:
            if not selector.permits_database(int(words.get(at))):
                return at
        return 0 if has_keys(entry) and not selector.permits_database(db) else -1
    if entry.fullname in ALL_DATABASES:
        return -1 if all(map(selector.permits_database, range(commands.databases))) else 0
    uses_data = has_keys(entry) or commands.data >> entry.index & 1
    return 0 if uses_data and not selector.permits_database(db) else -1
