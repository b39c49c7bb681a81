from rillet.commands.string.values cimport string_for_write, update_string
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.listpack cimport parse_int64
from rillet.types.string cimport String
