cimport cython
from rillet.runtime.engine cimport Engine
from rillet.runtime.session cimport Session
from rillet.scripting.calls cimport ScriptCalls

cdef bint _evalsha(Session session, list[bytes] argv, bint read_only)
