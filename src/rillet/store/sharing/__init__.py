"""The process that owns a directory, and the processes that are attached to it; a socket in front of a store."""
