from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport is_int64, parse_digits

cpdef long long integer_at(ArgumentSpans words, Py_ssize_t index, str message=*) except? -7777777777777777777
