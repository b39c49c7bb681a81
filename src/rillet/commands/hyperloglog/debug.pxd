from rillet.commands.hyperloglog.elements cimport check_value
from rillet.runtime.session cimport Session
from rillet.structs.hyperloglog cimport (
    Cursor,
    add,
    count,
    count_registers,
    merge,
    set_dense,
    to_dense,
    use_words,
    uses_words,
)
from rillet.types.string cimport String
