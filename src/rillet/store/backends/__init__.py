"""Where the engine of a store runs: in memory, in a snapshot of a directory, in a server; sharing/ has directories."""
