"""structs."""
