from rillet.commands.bitmap.bits cimport string_with_bits
from rillet.commands.bitmap.fast_path cimport largest_offset
from rillet.commands.bitmap.field_operations cimport FieldOperations
from rillet.commands.string.values cimport string_for_write, string_to_read
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.string cimport String, new_string
