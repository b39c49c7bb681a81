"""The commands about keys of any type. `command` declares one, by default with one key, argv[1]."""

from functools import partial

from rillet.runtime import registry

command = partial(registry.command, group="generic", keys=(1, 1, 1))
