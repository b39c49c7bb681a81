"""The modules that Cython compiles, in the order in which they depend on each other.

The build reads this list, and a test holds it against the sources (each listed file exists and
imports the shim; no other file does) and against the extensions in the compiled build.
"""

COMPILED = (
    "structs/listpack",
    "structs/rax",
    "structs/lzf",
    "types/stream_id",
    "types/string",
    "types/group",
    "types/stream",
    "keyspace/database",
    "protocol/parser",
    "protocol/writer",
    "protocol/replies",
    "commands/session",
    "commands/registry",
    "commands/stream_args",
    "commands/stream_write",
    "commands/stream_read",
    "commands/string",
    "engine",
    "columns/builder",
    "columns/resp",
    "columns/nodes",
)
