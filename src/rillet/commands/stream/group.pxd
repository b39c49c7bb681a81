cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport integer, option, read_id
from rillet.commands.stream.lookup cimport logged_now, lookup_read, lookup_write
from rillet.types.stream.group cimport Group
from rillet.types.stream.value cimport Stream
from rillet.types.stream.id cimport IDReader
