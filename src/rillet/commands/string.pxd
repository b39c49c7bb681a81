from rillet.commands.session cimport Session
from rillet.keyspace.database cimport Database
from rillet.protocol.writer cimport Replies
from rillet.types.string cimport String, new_string, string2ll
