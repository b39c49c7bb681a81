from rillet.commands.string.set_options cimport SetOptions, without_get
from rillet.commands.string.values cimport form_of_word, store_string, write_string, write_string_of
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.types.string cimport String, new_string, string2ll
