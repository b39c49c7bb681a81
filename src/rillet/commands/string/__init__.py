"""string."""
