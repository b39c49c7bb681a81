cimport cython
from rillet.runtime.session cimport Session
from rillet.commands.stream.arguments cimport integer, option
from rillet.commands.stream.lookup cimport lookup_read
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.structs.listpack cimport Listpack
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.id cimport IDReader, encode_key, key_ms, key_seq, less
from rillet.types.stream.iterator cimport StreamIterator
from rillet.types.stream.node cimport int_at
from rillet.types.stream.counts cimport StreamCounts
