cimport cython
from rillet.runtime.expiry cimport Expiry
from rillet.runtime.implementation cimport Implementation
from rillet.runtime.registry cimport Command
from rillet.structs.argument_spans cimport ArgumentSpans

cdef class CommandFinder(Expiry):
    cdef dict _renamed
    cdef dict _by_name
    cdef Command _last_entry
    cdef list _implementations
    cdef list _spans
    cpdef ArgumentSpans take_spans(self)
    cpdef bint give_spans(self, ArgumentSpans words)
    cpdef Command command_of(self, ArgumentSpans words)
    cdef Implementation _implementation(self, Command entry)
    cpdef Command lookup(self, list[bytes] argv)
    cdef Command _find(self, bytes name)
    cdef Command _find_subcommand(self, Command entry, bytes name)
