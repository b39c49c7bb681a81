from rillet.commands.array.values cimport array_for_write, array_to_read, changed, parse_index, write_index, write_word
from rillet.runtime.session cimport Session
from rillet.structs.sparse_array cimport SparseArray
from rillet.types.array cimport Array

cpdef bint set_range(
    Session session, SparseArray cells, unsigned long long first, list[bytes] argv, Py_ssize_t begin
) except -1
cdef bint _removed(Session session, bytes key, Array array, bytes event, unsigned long long count) except -1
