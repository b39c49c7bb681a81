from rillet.commands.array.values cimport array_to_read, parse_index, write_index, write_word
from rillet.structs.array.array_cursor cimport ArrayCursor
from rillet.structs.array.array_slice cimport double_of, integer_of, word_of
from rillet.structs.array.sparse_array cimport SparseArray
from rillet.types.array cimport Array

cdef Py_ssize_t _count(SparseArray cells, ArrayCursor cursor, bytes wanted)
cdef object _sum_of_integers(ArrayCursor cursor)
cdef object _number(SparseArray cells, unsigned long long word)
