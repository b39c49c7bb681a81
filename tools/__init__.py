"""Programs for the development of rillet; see the Makefile."""
