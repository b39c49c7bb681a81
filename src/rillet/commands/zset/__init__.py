"""The sorted set commands. `command` declares one, by default with one key, argv[1]."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="sorted-set", keys=(1, 1, 1))
