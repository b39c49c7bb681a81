"""The stream type: nodes, iteration, consumer groups, pending entries and idempotent producers."""
