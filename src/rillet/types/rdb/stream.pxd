cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.types.stream.group cimport Consumer, Group
from rillet.types.rdb.stream_node_batch cimport NodeBatch
from rillet.types.stream.pending cimport PendingTable
from rillet.types.rdb.primitives cimport RdbReader, RdbWriter
from rillet.types.stream.stream cimport Stream
from rillet.types.stream.id cimport less
from rillet.types.stream.validation cimport LivingEntries

cpdef bint save_stream(RdbWriter out, Stream stream, int kind, long long now=*)
cpdef Stream load_stream(RdbReader reader, int kind, long long now=*, bint strict=*)
