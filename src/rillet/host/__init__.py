"""An engine with its log, snapshots, lock and timers, and no socket: below the server and the store, which share it."""
