"""Frameworks that are written for Redis, unmodified, on rillet: `make test-frameworks`. See docs/frameworks.md."""
