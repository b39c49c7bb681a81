"""list."""
