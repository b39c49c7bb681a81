from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.types.string cimport String, new_string

cpdef bint write_string(ReplyWriter out, object value) except -1
cpdef String string_for_write(Database db, bytes key)
cpdef bint store_string(Session session, bytes key, bytes data, bytes event) except -1
cpdef bint update_string(Session session, bytes key, String string, bytes event) except -1
