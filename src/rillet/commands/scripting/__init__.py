"""scripting."""
