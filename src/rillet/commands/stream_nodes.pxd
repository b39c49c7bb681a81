cimport cython
from rillet.commands.session cimport Session
from rillet.commands.stream_args cimport integer, option, read_stream
from rillet.protocol.writer cimport Replies
from rillet.structs.listpack cimport Listpack
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.types.stream cimport Stream
from rillet.types.stream_id cimport IDReader, encode_key, key_ms, key_seq, less
from rillet.types.stream_iterator cimport StreamIterator
from rillet.types.stream_node cimport int_at
from rillet.types.stream_sums cimport StreamSums
