"""The inspector: a local web page over a store or a server, and the figures that `rillet top` and reports share.

    layout/      the bytes of a value as a tree of annotated spans; no store, no input or output
    text         hostile bytes as printable text, and back
    place        what is inspected: a directory, a server, a cluster
    budget       the bound on what the inspector costs the server at rest
    scanning     passes over all keys in small steps of SCAN: the streams; keys by type and size
    sampling     what the overview shows, step by step: these passes, figures of streams, memory, clients, slow log
    streams      pages of entries, filters, JSON values           blocks   the bytes of a key
    groups       lag, consumers, pending entries                  actions  claim, ack, ... as commands with a preview
    console      commands with help from the command table        search   keys and entries, streamed
    export       CSV, JSON lines, Parquet
    feed         live updates, one event stream for a page
    security     token, Host and Origin, Content-Security-Policy
    app          the routes; openapi describes them
    static/      the pages: Preact, htm and uPlot, vendored by tools/vendor_pages.py

The inspector reads through `rillet.store`, with ordinary commands, and decodes bytes with `structs` and `types`. It
never reaches an engine, so that it shows the same of every server. It needs `pip install 'rillet[inspect]'`.
"""
