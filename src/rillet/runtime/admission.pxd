from rillet.runtime.registry cimport Command
from rillet.runtime.session cimport Session

cpdef bint admit(object engine, Session session, Command entry, list[bytes] argv) except -1
