"""RDB serialization of each value type, for DUMP, RESTORE and RDB files."""
