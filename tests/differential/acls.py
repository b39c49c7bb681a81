"""Random rules of access control, by a grammar and as garbage, and random calls to decide about."""

from __future__ import annotations

import random

from rillet.runtime.acl.commands import command_set
from rillet.runtime.registry import TABLE, Command, load_commands
from rillet.types.compat import COMPATS

KEYS = [b"a", b"ab", b"abc", b"b", b"foo:1", b"foo:2", b"bar", b"", b"x*", b"k\xff"]
CHANNELS = [b"a", b"news", b"news.it", b"n*", b"*", b"a*", b"orders:1"]
PATTERNS = [b"a", b"a*", b"*b", b"foo:*", b"?", b"[ab]*", b"b\\*", b"x*", b"news*", b"n*", b"*", b"", b"A*"]
PASSWORDS = [b"p", b"secret", b"", b"p p", b"\xff"]
HASHES = [
    b"2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    b"0" * 64,
    b"g" * 64,
    b"0" * 63,
    b"A" * 64,
]
FLAGS = [b"on", b"off", b"nopass", b"resetpass", b"reset", b"clearselectors", b"sanitize-payload",
         b"skip-sanitize-payload"]  # fmt: skip
PARTS = [b"allkeys", b"resetkeys", b"allchannels", b"resetchannels", b"allcommands", b"nocommands", b"+@all", b"-@all"]
FIRST = [b"select|0", b"select|1", b"get|a", b"config|get", b"config|nosuch", b"client|id", b"config|get|x", b"select|",
         b"|x", b"nosuch|x", b"debug|object", b"memory|usage", b"object|", b"set|K", b"set|k", b"SELECT|0"]  # fmt: skip
GARBAGE = [
    b"%", b"%R", b"%RW~", b"%X~a", b"%RR~a", b"~a b", b"&a\tb", b"+", b"-", b"+@", b"+@nosuch", b"-@NOSUCH", b"=",
    b")", b"(", b"()", b"( )", b"( on )", b"(~a", b"+get)", b"foo", b"", b"ON", b"AllKeys", b"~", b"&", b"#", b"!",
    b"<", b"+@Read", b"-Get", b"+gEt", b"+get ", b"~a\r\nb", b"foo\r\nbar", b"(~a (+get) )", b"(nosuch)", b"(+get",
    b"~*", b"&*", b"~**", b"(\"~a\" +get)", b"(\"~a)", b"('~x' -set)",
]  # fmt: skip
DBS = [b"alldbs", b"resetdbs", b"db=0", b"db=1,2", b"db=2,1,1", b"db=", b"db=,", b"db=1,", b"db=a", b"db=-1", b"db=99",
       b"db=4294967296", b"db=99999999999999999999", b"DB=3", b"db= 1", b"db=+1", b"db=1,,2", b"AllDbs"]  # fmt: skip


class Generator:
    """Makes rules and calls for one server."""

    def __init__(self, seed: int, compat: str) -> None:
        load_commands()
        self.random = random.Random(seed)
        self.compat = COMPATS[compat]
        commands = command_set(self.compat, 16)
        self.names = [name for name in map(commands.name, commands.in_order())
                      if not name.startswith((b"rillet.", b"lmovem"))]  # fmt: skip
        self.categories = [name.encode() for name in commands.categories]
        self.calls = [one for entry in TABLE.known(self.compat) if not entry.name.startswith(("rillet", "lmovem"))
                      for one in (entry, *(entry.subcommands or {}).values())
                      if one.subcommands is None and one.known_to(self.compat)
                      # Servers before 8.8 ignore the key of a PFMERGE without sources, which writes it.
                      and (one.fullname != "pfmerge" or self.compat.knows(88))]  # fmt: skip

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def of_command(self) -> bytes:
        """Return a rule about a command or a category."""
        sign = self.random.choice([b"+", b"+", b"-"])
        if self.chance(0.35):
            return sign + b"@" + self.random.choice(self.categories)
        if self.chance(0.15):
            return sign + self.random.choice(FIRST)
        name = self.random.choice(self.names)
        return sign + (name.upper() if self.chance(0.05) else name)

    def of_selector(self) -> bytes:
        """Return a rule that may stand in parentheses."""
        choice = self.random.random()
        if choice < 0.5:
            return self.of_command()
        if choice < 0.7:
            return self.random.choice([b"~", b"~", b"%R~", b"%W~", b"%RW~", b"%wr~"]) + self.random.choice(PATTERNS)
        if choice < 0.8:
            return b"&" + self.random.choice(PATTERNS)
        if choice < 0.88 and self.compat.valkey:
            return self.random.choice(DBS)
        return self.random.choice(PARTS)

    def rule(self) -> bytes:
        """Return one rule of a user."""
        choice = self.random.random()
        if choice < 0.55:
            return self.of_selector()
        if choice < 0.62:
            return b"(" + b" ".join(self.of_selector() for _ in range(self.random.randrange(5))) + b")"
        if choice < 0.75:
            return self.random.choice(FLAGS)
        if choice < 0.85:
            return self.random.choice([b">", b">", b"<"]) + self.random.choice(PASSWORDS)
        if choice < 0.92:
            return self.random.choice([b"#", b"!"]) + self.random.choice(HASHES)
        if choice < 0.97:
            return self.random.choice(GARBAGE)
        return bytes(self.random.choice(b"+-~&@%|()<>#! aget*\\[]") for _ in range(self.random.randrange(6)))

    def rules(self, most: int = 6) -> list[bytes]:
        """Return the rules of one ACL SETUSER; sometimes a selector comes in several arguments."""
        rules: list[bytes] = []
        for _ in range(self.random.randrange(most + 1)):
            rule = self.rule()
            rules += rule.split(b" ") if rule.startswith(b"(") and self.chance(0.5) else [rule]
        return rules

    def safe(self, rules: list[bytes]) -> bool:
        """Return whether the genuine server survives the rules: it crashes when it describes some of them."""
        whole = b" ".join(rules)
        if not self.compat.knows(82) and not self.compat.valkey:
            return b"%~" not in whole and b"%" not in rules
        return True

    def word(self) -> bytes:
        """Return an argument of a call."""
        pool = [KEYS, KEYS, CHANNELS, [b"1", b"2", b"0", b"-1", b"3", b"16", b"STORE", b"GET", b"BY", b"SET",
                                       b"DB", b"REPLACE", b"INCRBY", b"OVERFLOW", b"FAIL", b"KEYS", b"GROUP", b"COUNT",
                                       b"storedist", b"limit", b"get", b"u8", b"ifeq"]]  # fmt: skip
        return self.random.choice(self.random.choice(pool))

    def call(self) -> list[bytes]:
        """Return a call with a valid number of arguments."""
        entry: Command = self.random.choice(self.calls)
        line = entry.fullname.encode().split(b"|")
        if entry.name in ("xread", "xreadgroup"):
            line += [b"GROUP", b"g", b"STREAMS"] if entry.name == "xreadgroup" else []
            line += [b"COUNT", b"2"] if self.chance(0.5) else []
            return [*line, b"STREAMS", *(self.word() for _ in range(self.random.randrange(1, 6)))]
        if entry.name in ("georadius", "georadiusbymember"):  # the server finds the first STORE, but uses the last one
            line += [self.random.choice(KEYS) for _ in range(-entry.arity - 1)]
            return line + [self.random.choice([b"STORE", b"storedist"]), self.word()][: self.random.choice([0, 2])]
        count = abs(entry.arity) - len(line)
        if entry.arity < 0:
            count += self.random.choice([0, 0, 1, 2, 3, 5])
        return line + [self.word() for _ in range(count)]
