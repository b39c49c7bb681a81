"""The modules that Cython compiles, in dependency order.

TYPED modules declare C types, for speed. PLAIN modules are ordinary Python; they are compiled so that nothing comes
between two steps of a command. Python runs signal handlers and raises exceptions from outside in interpreted code,
and in few of its C functions (rillet.structs.integer_text). A command that runs neither after its first change is
whole or has not begun (rillet.store.transports.shield).

The build executes this file alone, so it imports nothing from rillet. A test compares the lists with the
sources (each typed file imports `cython`; no other file does) and with the extensions of the compiled build.

A process runs the build whose folder comes first on Python's path: `src` contains no extensions, while an
installed package or `build/compiled` contains one for each name below. There is no switch at run time.
"""

from __future__ import annotations

from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec

TYPED = (
    "structs/memory",
    "structs/argument_spans",
    "structs/block_list",
    "structs/arena",
    "structs/dict_table",
    "structs/dict",
    "structs/listpack",
    "structs/rax",
    "structs/rax_iterator",
    "structs/lzf",
    "structs/crc64",
    "structs/quicklist",
    "structs/skiplist",
    "structs/integer_text",
    "structs/float_text",
    "types/charged",
    "types/packed_zset",
    "types/stream/id",
    "types/string",
    "types/stream/node",
    "types/stream/pending",
    "types/stream/time_order",
    "types/stream/group",
    "types/stream/iterator",
    "types/stream/counts",
    "types/stream/value",
    "types/stream/compaction",
    "types/stream/validation",
    "types/rdb/primitives",
    "types/rdb/tables",
    "types/rdb/stream_node_batch",
    "types/rdb/stream",
    "types/stream/entry_lookup",
    "types/at_rest",
    "keyspace/clock",
    "keyspace/lru",
    "keyspace/memory_usage",
    "keyspace/rest_buffer",
    "keyspace/database",
    "keyspace/expire_cycle",
    "keyspace/eviction",
    "protocol/read_buffer",
    "protocol/reply_writer",
    "protocol/propagation_buffer",
    "protocol/command_parser",
    "protocol/reply_parser",
    "runtime/session",
    "runtime/channels",
    "runtime/registry",
    "runtime/statistics",
    "runtime/propagation",
    "runtime/blocking",
    "runtime/admission",
    "runtime/fast_path",
    "commands/stream/arguments",
    "commands/stream/lookup",
    "commands/stream/add",
    "commands/stream/delete",
    "commands/stream/range",
    "commands/stream/bulk_read",
    "commands/stream/propagation",
    "commands/stream/read_arguments",
    "commands/stream/read_reply",
    "commands/stream/read_blocking",
    "commands/stream/read",
    "commands/stream/delivery",
    "commands/stream/read_group",
    "commands/stream/claim",
    "commands/stream/group",
    "commands/stream/pending",
    "commands/string/values",
    "commands/string/fast_path",
    "commands/string/get_set",
    "commands/string/ranges",
    "commands/string/counters",
    "commands/small_values",
    "commands/hash/fast_path",
    "commands/list/fast_path",
    "commands/list/reply",
    "commands/set/fast_path",
    "commands/zset/fast_path",
    "commands/table_replies",
    "runtime/engine",
    "persistence/file_status",
    "persistence/aof/file",
    "persistence/aof/frames",
    "persistence/aof/command_applier",
    "persistence/rdb/plain_keys",
    "persistence/aof/log",
    "server/connection",
    "columns/value_parsing",
    "columns/column",
    "columns/value_formatting",
    "columns/row_builder",
    "columns/receive_buffer",
    "columns/resp_decoder",
    "columns/row_packing",
    "columns/table_decoder",
    "columns/command_packing",
    "columns/node_decoder",
    "columns/node_pages",
    "store/encoding",
    "store/field_table",
    "store/transports/lock",
)

PLAIN = (
    "structs/glob",
    "structs/intset",
    "types/compat",
    "types/encoding_limits",
    "types/hash",
    "types/list",
    "types/set",
    "types/zset",
    "types/stream/idmp",
    "runtime/session_state",
    "keyspace/lazyfree",
    "commands/arguments",
    "commands/lookup",
    "commands/replies",
    "commands/first_key_pop",
    "commands/connection/transactions",
    "commands/hash/fields",
    "commands/hash/random_fields",
    "commands/keys/copy",
    "commands/keys/delete",
    "commands/keys/dump",
    "commands/keys/expire",
    "commands/keys/lookup",
    "commands/keys/object",
    "commands/keys/scan",
    "commands/list/elements",
    "commands/list/move",
    "commands/list/pop",
    "commands/set/members",
    "commands/set/operations",
    "commands/set/random_members",
    "commands/zset/members",
    "commands/zset/operations",
    "commands/zset/pop",
    "commands/zset/random_members",
    "commands/zset/range",
    "commands/stream/idmp",
    "commands/stream/nack",
    "persistence/disk",
    "persistence/aof/buffer",
    "store/transports/presence",
    "store/transports/thread_sessions",
    "store/transports/in_process",
)

COMPILED = TYPED + PLAIN


def by_speed() -> tuple[list[str], list[str]]:
    """Return the listed modules that this process imports compiled, and those that it imports interpreted."""
    compiled: list[str] = []
    interpreted: list[str] = []
    for name in COMPILED:
        spec = find_spec("rillet." + name.replace("/", "."))
        if spec is not None:
            (compiled if isinstance(spec.loader, ExtensionFileLoader) else interpreted).append(name)
    return compiled, interpreted
