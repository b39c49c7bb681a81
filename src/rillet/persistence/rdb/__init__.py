"""RDB files: the reader, the writer, and the snapshots of SAVE and BGSAVE."""
