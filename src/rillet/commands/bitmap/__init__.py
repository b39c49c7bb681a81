"""The bit commands: strings as arrays of bits. By default the command's key is argv[1]."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="bitmap", keys=(1, 1, 1))
