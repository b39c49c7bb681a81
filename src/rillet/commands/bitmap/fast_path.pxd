cimport cython
from rillet.commands.bitmap.field_operations cimport FieldOperations
from rillet.commands.string.value_path cimport StringPath
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.bits cimport combine_pair, count_bits, find_bit, read_field, write_field
from rillet.structs.dict cimport Dict
from rillet.types.string cimport String

cdef Py_ssize_t largest_offset(Session session) except -1

@cython.final
cdef class SetbitFastPath(StringPath):
    pass

@cython.final
cdef class GetbitFastPath(StringPath):
    pass

cdef class _RangePath(StringPath):
    cdef long long first
    cdef long long last
    cdef bint parse_range(self, ArgumentSpans words, Py_ssize_t at) except -1
    cdef Py_ssize_t end(self) except -1

@cython.final
cdef class BitcountFastPath(_RangePath):
    pass

@cython.final
cdef class BitposFastPath(_RangePath):
    pass

@cython.final
cdef class BitfieldFastPath(StringPath):
    cdef FieldOperations _operations

@cython.final
cdef class BitopFastPath(StringPath):
    cdef ArgumentSpans _key
    cdef Py_ssize_t _find(self, Database db, ArgumentSpans words, Py_ssize_t index) except -3
    cdef bint _combine_to(
        self, bytearray buf, Py_ssize_t start, const unsigned char *at, Py_ssize_t size, int operation
    ) except -1
