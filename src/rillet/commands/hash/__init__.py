"""hash."""
