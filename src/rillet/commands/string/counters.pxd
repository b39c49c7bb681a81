from rillet.commands.string.values cimport string_for_write, string_to_change, update_string
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.types.string cimport String, new_string, string2ll
