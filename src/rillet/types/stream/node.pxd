cimport cython
from rillet.structs.listpack cimport Listpack, is_int64, parse_int64
from rillet.structs.argument_spans cimport ArgumentSpans

cpdef long long int_at(Listpack lp, Py_ssize_t pos) except? -77777777777
cpdef long long size_at(Listpack lp, Py_ssize_t pos) except? -77777777777
cpdef Listpack new_node(ArgumentSpans words, Py_ssize_t start, Py_ssize_t nfields, Py_ssize_t capacity)
cpdef bint append_entry(Listpack lp, bint same, long long ms_delta, long long seq_delta, ArgumentSpans words, Py_ssize_t start,
                        Py_ssize_t nfields)
cpdef Py_ssize_t master_fields(Listpack lp)
cpdef Py_ssize_t first_entry(Listpack lp)
cpdef Py_ssize_t entry_before(Listpack lp, Py_ssize_t pos) except? -2
cpdef Py_ssize_t mark_deleted(Listpack lp, Py_ssize_t pos, long long flags)
cpdef bint count_deleted(Listpack lp, long long deleted)
cpdef bint validate_node(Listpack lp, bint deep=*)
