from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans
from rillet.structs.listpack cimport parse_digits
from rillet.structs.array.array_slice cimport integer_of
from rillet.structs.array.sparse_array cimport SparseArray
from rillet.types.array cimport Array

cpdef unsigned long long parse_index(bytes raw, bint terminal=*) except? 7777777777777777777
cpdef unsigned long long index_at(ArgumentSpans words, Py_ssize_t at) except? 7777777777777777777
cpdef Array array_at(Session session, ArgumentSpans words, bint create)
cpdef Array array_to_read(Session session, bytes key)
cpdef Array array_for_write(Session session, bytes key, bint create)
cpdef bint write_word(ReplyWriter out, SparseArray cells, unsigned long long word)
cpdef bint write_index(ReplyWriter out, unsigned long long index)
cpdef bint changed(Session session, bytes key, bytes event, long long changes)
