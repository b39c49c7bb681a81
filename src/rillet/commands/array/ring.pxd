from rillet.commands.array.elements cimport set_range
from rillet.commands.array.values cimport array_for_write, array_to_read, changed, parse_index, write_index, write_word
from rillet.runtime.session cimport Session
from rillet.structs.sparse_array cimport SparseArray
from rillet.types.array cimport Array
