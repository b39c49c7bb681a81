from rillet.structs.dict cimport Dict
from rillet.structs.listpack cimport Listpack
from rillet.structs.intset cimport Intset
from rillet.structs.quicklist cimport Quicklist, QuicklistNode
from rillet.types.set cimport Set
from rillet.types.string cimport String, new_string

cpdef bytes string_at_rest(bytes data, int form)
cpdef bytes to_rest(object value)
cpdef object awaken(bytes data)
