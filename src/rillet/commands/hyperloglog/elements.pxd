from rillet.commands.string.values cimport string_for_write, string_to_read
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.hyperloglog cimport (
    Cursor,
    add,
    cache_count,
    cached_count,
    forget_count,
    is_valid,
)
from rillet.structs.hyperloglog_union cimport Union, count_string
from rillet.types.string cimport String, new_string

cpdef bint check_value(object value) except -1
