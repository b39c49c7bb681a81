from rillet.structs.array.array_slice cimport (
    ArraySlice, double_of, integer_of, offset_at, word_at, word_of, word_of_integer, word_of_short,
)
from rillet.structs.array.sparse_array cimport SparseArray
from rillet.types.array cimport Array
from rillet.types.rdb.primitives cimport RdbReader, RdbWriter

cdef bint _save_value(
    RdbWriter out, SparseArray cells, unsigned long long index, unsigned long long word
)
cpdef bint save(RdbWriter out, Array value, object kind=*)
cdef bint _load_value(RdbReader reader, SparseArray cells, Py_ssize_t kmax)
