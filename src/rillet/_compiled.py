"""The modules that Cython compiles, in the order in which they depend on each other.

The build reads this list by running the file alone, so nothing of rillet is imported here. A test holds it
against the sources (each listed file exists and imports the shim; no other file does) and against the
extensions in the compiled build.

Which of the two a process runs is decided by the folder that Python finds first: `src` holds no extension, an
installed package or `build/compiled` holds one for each name below. Nothing is switched at run time.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec

COMPILED = (
    "structs/memory",
    "structs/words",
    "structs/listpack",
    "structs/rax",
    "structs/rax_iterator",
    "structs/lzf",
    "structs/quicklist",
    "structs/skiplist",
    "structs/doubles",
    "types/stream_id",
    "types/string",
    "types/stream_node",
    "types/pending",
    "types/group",
    "types/stream_iterator",
    "types/stream_sums",
    "types/stream",
    "types/stream_order",
    "types/rdb_bytes",
    "types/node_batch",
    "types/stream_rdb",
    "types/stream_finder",
    "keyspace/clock",
    "keyspace/database",
    "protocol/intake",
    "protocol/writer",
    "protocol/feed",
    "protocol/parser",
    "protocol/replies",
    "commands/session",
    "commands/channels",
    "commands/registry",
    "commands/shortcut",
    "commands/stream_args",
    "commands/stream_write",
    "commands/stream_delete",
    "commands/stream_read",
    "commands/stream_nodes",
    "commands/stream_log",
    "commands/stream_consume",
    "commands/stream_claim",
    "commands/stream_group",
    "commands/string",
    "commands/list_reply",
    "engine",
    "persistence/batches",
    "persistence/playback",
    "server/connection",
    "columns/text",
    "columns/column",
    "columns/digits",
    "columns/builder",
    "columns/inbox",
    "columns/resp",
    "columns/pack",
    "columns/nodes",
    "columns/node_pages",
    "store/encoding",
)


def by_speed() -> tuple[list[str], list[str]]:
    """Return the listed modules that this process finds compiled, and those that it finds interpreted."""
    compiled: list[str] = []
    interpreted: list[str] = []
    for name in COMPILED:
        spec = find_spec("rillet." + name.replace("/", "."))
        if spec is not None:
            (compiled if isinstance(spec.loader, ExtensionFileLoader) else interpreted).append(name)
    return compiled, interpreted
