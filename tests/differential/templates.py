"""Commands made from templates: lines of words that chance fills in.

    a|b       one of the words
    $name     one of the values of that name
    %name     none to three of the options of that name
    &name     one of them

Templates stand on lines, or are separated by three spaces. The same seed gives the same commands.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

Word = bytes | str | int
Command = list[Word]


def words(command: Command) -> list[bytes]:
    """Return the words of a command as bytes."""
    return [word if isinstance(word, bytes) else str(word).encode() for word in command]


class Maker:
    """Makes commands from templates, most of them sensible."""

    def __init__(
        self, seed: int, templates: str, values: Mapping[str, Sequence[Word]], options: Mapping[str, Sequence[str]]
    ) -> None:
        self.random = random.Random(seed)
        self.templates = [one for one in re.split(r"\n| {3,}", templates) if one.strip()]
        self.values = values
        self.options = options

    def command(self) -> Command:
        """Return the next command; its name in any case."""
        name, *rest = self.filled(self.random.choice(self.templates))
        spelled = self.random.choice((str.upper, str.lower, str.capitalize))(str(name))
        return [spelled, *rest]

    def filled(self, template: str) -> Command:
        """Return the words of a template."""
        command: Command = []
        for word in template.split():
            if word.startswith("$"):
                command.append(self.value(word[1:]))
            elif word[0] in "%&":
                for _ in range(self.random.choice((0, 0, 1, 1, 2, 3)) if word[0] == "%" else 1):
                    command += self.filled(self.random.choice(self.options[word[1:]]))
            else:
                command.append(self.random.choice(word.split("|")))
        return command

    def value(self, name: str) -> Word:
        """Return one of the values of a name."""
        return self.random.choice(self.values[name])
