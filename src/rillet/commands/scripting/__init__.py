"""The commands about scripts and functions."""
