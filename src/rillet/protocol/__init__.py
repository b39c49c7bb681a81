"""RESP2 and RESP3 parsers and writers, without I/O."""
