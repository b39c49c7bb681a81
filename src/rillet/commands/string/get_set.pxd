cimport cython
from libc.string cimport memcmp
from rillet.commands.string.set_options cimport SetOptions, expiry_ms, without_get
from rillet.commands.string.values cimport StringCommand, form_of_word, store_string, write_string_at, write_string_of
from rillet.keyspace.database cimport Database
from rillet.protocol.reply_writer cimport ReplyWriter
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.session cimport Session
from rillet.structs.argument_spans cimport ArgumentSpans

@cython.final
cdef class Set(StringCommand):
    cdef SetOptions _options
    cdef bint _store(self, Session session, ArgumentSpans words, SetOptions options)
    cdef bint _admits(self, Session session, ArgumentSpans words, SetOptions options, Py_ssize_t n)

@cython.final
cdef class Get(Implementation):
    pass

@cython.final
cdef class Getex(StringCommand):
    pass

@cython.final
cdef class Msetex(Implementation):
    pass
