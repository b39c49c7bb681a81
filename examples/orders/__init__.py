"""An order service with four workers: see service.py."""
