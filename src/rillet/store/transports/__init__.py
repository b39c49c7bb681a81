"""The ways in which a store reaches its engine: in this process, attached, a server, a cluster."""
