"""The HyperLogLog commands: approximate numbers of different elements. By default the command's key is argv[1]."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="hyperloglog", keys=(1, 1, 1))
