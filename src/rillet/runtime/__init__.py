"""The engine that executes commands, with its sessions, settings and statistics."""
