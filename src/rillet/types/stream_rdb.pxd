cimport cython
from rillet.structs.listpack cimport Listpack
from rillet.structs.rax_iterator cimport RaxIterator
from rillet.types.group cimport Consumer, Group
from rillet.types.node_batch cimport NodeBatch
from rillet.types.pending cimport Pending
from rillet.types.rdb_bytes cimport RdbReader, RdbWriter
from rillet.types.stream cimport Stream
from rillet.types.stream_id cimport less
from rillet.types.stream_order cimport LivingEntries

cpdef bint save_stream(RdbWriter out, Stream stream, int kind, long long now=*) except -1
cpdef Stream load_stream(RdbReader reader, int kind, long long now=*, bint strict=*)
