"""Writing rows to streams: encoding, pipelines, transactions and commit records."""
