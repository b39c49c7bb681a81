"""The list commands. `command` declares one, by default with one key, argv[1]."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="list", keys=(1, 1, 1))
