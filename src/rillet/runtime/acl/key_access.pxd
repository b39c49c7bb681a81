from rillet.structs.argument_spans cimport ArgumentSpans

cpdef Py_ssize_t first_after(ArgumentSpans words, bytes keyword, Py_ssize_t start)
