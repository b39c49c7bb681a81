"""The Redis client that the store and the Spark connector share.

    address      url -> Address: host or Unix socket, TLS, credentials, the nodes of a cluster
    protocol     sans-IO: commands -> bytes, bytes -> replies, the opening of a connection
    sentinel     the master of a service that Sentinels watch
    connection   a blocking socket around the protocol, with TLS
    cluster      slots, and the map of which node owns which slot
    redirection  MOVED, ASK, TRYAGAIN and the pauses before another attempt
    servers      connections by key; sends commands, follows redirections, reconnects
    pages        the one way to read a stream page by page
    transaction  the one WATCH / MULTI / EXEC loop
    errors       the error classes and the sentence for each refusal

No module of the package imports `rillet.store` or `rillet.spark`. docs/design/0012-one-redis-client.md compares this
client with redis-py and gives the reasons for keeping it.
"""
