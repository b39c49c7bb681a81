from rillet.commands.bitmap.fast_path cimport largest_offset
from rillet.commands.string.values cimport store_string, string_for_write, string_to_read
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.bits cimport combine, count_bits, find_bit, read_field, write_field
from rillet.types.string cimport String, new_string, string2ll

cpdef String string_with_bits(Session session, bytes key, String string, Py_ssize_t bits)
