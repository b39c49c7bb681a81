from rillet.commands.string.values cimport form_of_word, string_for_write, string_to_read
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.types.string cimport String, new_string, string2ll
