from rillet.runtime.session cimport Session
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.types.string cimport String, new_string, string2ll
