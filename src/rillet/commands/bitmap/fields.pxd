from rillet.commands.bitmap.bits cimport bit_offset, string_with_bits
from rillet.commands.string.values cimport string_for_write, string_to_read
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.bits cimport read_field, write_field
from rillet.types.string cimport String, new_string, string2ll
