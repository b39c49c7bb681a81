"""The arguments of the API: their checks, and how they become the arguments of commands."""
