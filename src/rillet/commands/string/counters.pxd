cimport cython
from rillet.commands.span_arguments cimport integer_at
from rillet.commands.string.values cimport StringCommand, string_to_change, update_string
from rillet.keyspace.database cimport Database
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.integer_text cimport decimal, put_decimal
from rillet.structs.listpack cimport parse_digits
from rillet.types.string cimport String, string2ll

@cython.final
cdef class Increment(StringCommand):
    cdef bint _subtracts
