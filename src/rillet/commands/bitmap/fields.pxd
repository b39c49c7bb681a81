cimport cython
from rillet.commands.bitmap.bits cimport largest_offset, string_with_bits
from rillet.commands.bitmap.field_operations cimport FieldOperations
from rillet.commands.string.values cimport StringCommand, string_at
from rillet.keyspace.database cimport Database
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.types.string cimport String

@cython.final
cdef class Bitfield(StringCommand):
    cdef bint _only_reads
    cdef FieldOperations _operations
