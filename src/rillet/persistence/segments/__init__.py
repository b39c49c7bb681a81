"""Sealed nodes of streams in files: docs/formats/segment.md shows the bytes."""
