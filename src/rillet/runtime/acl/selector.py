"""A selector: commands, keys, channels and databases that belong together.

    bits          the permitted commands; -1 after `+@all`, and negative as long as later commands are permitted, too
    first         position -> permitted first arguments of a command that is not permitted otherwise
    rules         the rules about commands since the last `+@all` or `-@all`, in order, without overridden ones
    all_commands  no bit was removed since `+@all`: the bits need not be tested

A description is a text that creates the same selector. Since 7.2 Redis prints `rules`. Redis 7.0 finds a short text for
the bits: it repeatedly takes the category that fits best, then corrects single commands
(acl.c: ACLDescribeSelectorCommandRules). "Best" is the category with the fewest commands that contradict the bits.
"""

from __future__ import annotations

from rillet.protocol.command_parser import split_args
from rillet.runtime.acl.commands import CommandSet
from rillet.runtime.acl.rules import RuleError, c_string, has_blanks, syntax, unknown, useless_pattern
from rillet.structs.argument_spans import ArgumentSpans
from rillet.structs.glob import matches_any

READ = 1
WRITE = 2
_SHOWN = {READ | WRITE: b"~", READ: b"%R~", WRITE: b"%W~"}
_INT32_MAX = 2**31 - 1


class Selector:
    """One set of permissions; `apply` changes it by one rule."""

    __slots__ = ("all_channels", "all_commands", "all_dbs", "all_keys", "bits", "channels", "commands", "dbs", "first",
                 "keys", "rules")  # fmt: skip

    def __init__(self, commands: CommandSet, all_channels: bool) -> None:
        self.commands = commands
        self.bits = 0
        self.all_commands = False
        self.all_keys = False
        self.all_channels = all_channels
        self.all_dbs = True
        self.first: dict[int, list[bytes]] = {}
        self.rules: list[bytes] = []
        # Pattern -> READ, WRITE or both.
        self.keys: dict[bytes, int] = {}
        self.channels: list[bytes] = []
        self.dbs: list[int] = []

    def copy(self) -> Selector:
        """Return an independent copy."""
        other = Selector(self.commands, self.all_channels)
        other.bits, other.all_commands, other.all_keys = self.bits, self.all_commands, self.all_keys
        other.all_dbs, other.dbs = self.all_dbs, self.dbs
        other.first = {position: list(words) for position, words in self.first.items()}
        other.rules, other.keys, other.channels = list(self.rules), dict(self.keys), list(self.channels)
        return other

    @classmethod
    def parse(cls, text: bytes, commands: CommandSet, all_channels: bool) -> Selector:
        """Return the selector that `(rule rule ...)` describes; RuleError."""
        selector = cls(commands, all_channels)
        for rule in split_args(c_string(text[1:-1]), commands.compat.valkey) or ():
            selector.apply(rule)
        return selector

    @property
    def unlimited(self) -> bool:
        """True if every call is permitted."""
        return self.all_commands and self.all_keys and self.all_channels and self.all_dbs

    # -- rules ---------------------------------------------------------------------------------------

    def apply(self, rule: bytes) -> None:
        """Change the selector by one rule; RuleError (acl.c: ACLSetSelector)."""
        word = c_string(rule)
        name = word.lower()
        if name in (b"allkeys", b"~*"):
            self.all_keys, self.keys = True, {}
        elif name == b"resetkeys":
            self.all_keys, self.keys = False, {}
        elif name in (b"allchannels", b"&*"):
            self.all_channels, self.channels = True, []
        elif name == b"resetchannels":
            self.all_channels, self.channels = False, []
        elif name in (b"allcommands", b"+@all", b"nocommands", b"-@all"):
            self.all_commands = name in (b"allcommands", b"+@all")
            self.bits = -1 if self.all_commands else 0
            self.rules, self.first = [], {}
        elif name.startswith((b"~", b"%")):
            self._add_key_pattern(rule)
        elif name.startswith(b"&"):
            self._add_channel_pattern(rule[1:])
        elif name.startswith((b"+@", b"-@")):
            self._change_category(name)
        elif name.startswith(b"+"):
            self._allow(word[1:])
        elif name.startswith(b"-"):
            self._change_command(word[1:], False)
        elif self.commands.compat.valkey and (name in (b"alldbs", b"resetdbs") or name.startswith(b"db=")):
            self._change_dbs(name)
        else:
            raise syntax()

    def _add_key_pattern(self, rule: bytes) -> None:
        if self.all_keys:
            raise useless_pattern("allkeys", "patterns")
        flags, pattern = READ | WRITE, rule[1:]
        if rule.startswith(b"%"):
            letters, _, pattern = rule[1:].partition(b"~")
            flags = 0
            for letter in letters.upper():
                bit = {ord("R"): READ, ord("W"): WRITE}.get(letter, 0)
                if not bit or flags & bit:
                    raise syntax()
                flags |= bit
            if not flags:  # Redis 7.0 accepts `%~pattern`, and crashes when it describes the user
                raise syntax()
        if has_blanks(pattern):
            raise syntax()
        self.keys[pattern] = self.keys.get(pattern, 0) | flags

    def _add_channel_pattern(self, pattern: bytes) -> None:
        if self.all_channels:
            raise useless_pattern("allchannels", "channels")
        if has_blanks(pattern):
            raise syntax()
        if pattern not in self.channels:
            self.channels.append(pattern)

    def _change_dbs(self, name: bytes) -> None:
        """Apply `alldbs`, `resetdbs` or `db=1,2` (Valkey)."""
        self.all_dbs = name == b"alldbs"
        dbs: set[int] = set()
        for word in name[3:].split(b",") if name.startswith(b"db=") else ():
            digits = word.lstrip(b" \t\n\v\f\r")
            digits = digits[1:] if digits[:1] in (b"+", b"-") else digits
            if not digits.isdigit() or not digits.isascii():
                raise syntax()
            number = int(digits[-30:]) if word.find(b"-") < 0 else -int(digits[-30:])
            if not 0 <= number <= _INT32_MAX:
                raise RuleError("The provided database ID is out of range")
            dbs.add(number)
        self.dbs = sorted(dbs)

    def _change_category(self, name: bytes) -> None:
        bits = self.commands.applied(name[2:].decode("latin-1"))
        if bits is None:
            raise unknown()
        if name.startswith(b"+"):
            self.bits |= bits
        elif bits:
            self.bits &= ~bits
            self.all_commands = False
        for position in [position for position in self.first if bits >> position & 1]:
            del self.first[position]
        self._remember(name)

    def _allow(self, name: bytes) -> None:
        """Apply `+command`, `+container|subcommand` or `+command|first-argument`."""
        head, bar, tail = name.rpartition(b"|")
        if not bar:
            self._change_command(name, True)
            return
        position = self.commands.find(head)
        if position < 0:
            raise unknown()
        if self.commands.is_part(position):
            raise RuleError("Allowing first-arg of a subcommand is not supported")
        if not tail:
            raise syntax()
        if self.commands.parts(position):
            self._change_command(name, True, name)
            return
        if self.commands.compat.knows(72) and (has_blanks(tail) or b'"' in tail or b"'" in tail):
            raise syntax()  # the description could not be read back; Redis crashes
        words = self.first.setdefault(position, [])
        if tail.lower() not in [word.lower() for word in words]:
            words.append(tail)
        self._remember(b"+" + name.lower())

    def _change_command(self, name: bytes, allow: bool, shown: bytes = b"") -> None:
        position = self.commands.find(name)
        if position < 0:
            raise unknown()
        bits = 1 << position | self.commands.parts(position)
        if allow:
            self.bits |= bits
        else:
            self.bits &= ~bits
            self.all_commands = False
        self.first.pop(position, None)
        self._remember((b"+" if allow else b"-") + (shown.lower() or self.commands.name(position)))

    def _remember(self, rule: bytes) -> None:
        """Append a rule about commands and drop the rules that it overrides (ACLUpdateCommandRules)."""
        name = rule[1:]
        self.rules = [old for old in self.rules if old[1:] != name and not old.startswith(name + b"|", 1)]
        self.rules.append(rule)

    def use(self, commands: CommandSet) -> None:
        """Apply the rules about commands again, after commands came or went (modules)."""
        self.commands = commands
        if not commands.compat.knows(72):
            return  # Redis 7.0 keeps the bits
        rules = self.rules
        self.apply(b"+@all" if self.bits < 0 else b"-@all")
        for rule in rules:
            try:
                self.apply(rule)
            except RuleError:  # the command was unloaded with its module
                self.rules.append(rule)

    # -- description ---------------------------------------------------------------------------------

    def describe(self) -> bytes:
        """Return the rules that create this selector (ACLDescribeSelector)."""
        words = [b"~*"] if self.all_keys else self.key_patterns()
        words += [b"&*"] if self.all_channels else [b"resetchannels", *self.channel_patterns()]
        if not self.all_dbs:
            words.append(self.databases() or b"resetdbs")
        return b" ".join((*words, self.describe_commands()))

    def key_patterns(self) -> list[bytes]:
        """Return the key patterns as rules."""
        return [_SHOWN[flags] + pattern for pattern, flags in self.keys.items()]

    def channel_patterns(self) -> list[bytes]:
        """Return the channel patterns as rules."""
        return [b"&" + pattern for pattern in self.channels]

    def databases(self) -> bytes:
        """Return the databases as a rule, empty if there are none."""
        return b"db=" + ",".join(map(str, self.dbs)).encode() if self.dbs else b""

    def describe_commands(self) -> bytes:
        """Return the rules about commands."""
        base = b"+@all" if self.bits < 0 else b"-@all"
        if self.commands.compat.knows(72):
            return b" ".join((base, *self.rules))
        return b" ".join((base, *self._shortest()))

    def _shortest(self) -> list[bytes]:
        """Return a short list of rules for the bits, as Redis 7.0 finds it."""
        commands, additive = self.commands, self.bits >= 0
        left = self.bits
        drawn = Selector(commands, True)
        drawn.apply(b"-@all" if additive else b"+@all")
        rules: list[bytes] = []
        categories = list(commands.categories)
        while True:
            best, least, most = "", 1 << 30, 0
            for name in categories:
                counted = commands.counted[name]
                on = (left & counted).bit_count()
                off = counted.bit_count() - on
                against, for_it = (off, on) if additive else (on, off)
                if for_it > against and (against < least or (against == least and for_it > most)):
                    best, least, most = name, against, for_it
            if not best:
                break
            categories.remove(best)
            rules.append((b"+@" if additive else b"-@") + best.encode())
            drawn.apply(rules[-1])
            applied = commands.applied(best) or 0
            left = left & ~applied if additive else left | applied
        self._correct(drawn, rules)
        return rules

    def _correct(self, drawn: Selector, rules: list[bytes]) -> None:
        """Append the rules about single commands that turn the drawn selector into this one."""
        for position in self.commands.in_order():
            wanted = self.bits >> position & 1
            name = self.commands.name(position)
            if wanted != drawn.bits >> position & 1:
                rules.append((b"+" if wanted else b"-") + name)
                drawn.apply(rules[-1])
            if not wanted:
                rules += [b"+" + name + b"|" + word for word in self.first.get(position, ())]

    # -- decisions -----------------------------------------------------------------------------------

    def permits_command(self, position: int, words: ArgumentSpans) -> bool:
        """Return whether the command may run, perhaps because of its first argument."""
        if self.all_commands or self.bits >> position & 1:
            return True
        first = self.first.get(position)
        if first is None or words.count < 2:
            return False
        given = c_string(words.get(1)).lower()
        return any(word.lower() == given for word in first)

    def permits_key(self, key: bytes, flags: int) -> bool:
        """Return whether the key may be accessed (flags: READ, WRITE, both or none)."""
        return self.all_keys or matches_any(self.patterns_for(flags), key)

    def patterns_for(self, flags: int) -> list[bytes]:
        """Return the key patterns that grant an access."""
        return [pattern for pattern, granted in self.keys.items() if granted & flags == flags]

    def permits_every_key(self, flags: int) -> bool:
        """Return whether all keys may be accessed (ACLSelectorHasUnrestrictedKeyAccess)."""
        return self.all_keys or self.keys.get(b"*", 0) & flags == flags

    def permits_channel(self, channel: bytes, is_pattern: bool) -> bool:
        """Return whether a channel may be used; a pattern of PSUBSCRIBE must be equal to a permitted pattern."""
        return self.all_channels or matches_channel(self.channels, channel, is_pattern)

    def permits_database(self, number: int) -> bool:
        """Return whether a database may be used (Valkey)."""
        return self.all_dbs or number in self.dbs


def matches_channel(patterns: list[bytes], channel: bytes, is_pattern: bool) -> bool:
    """Return whether one of the patterns permits the channel (ACLCheckChannelAgainstList)."""
    if is_pattern:
        return any(c_string(pattern) == c_string(channel) for pattern in patterns)
    return matches_any(patterns, channel)
