"""zstd for the nodes of segments, by the package zstandard, which is loaded at the first use.

A node becomes one frame, which says the size of its content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rillet.errors import Corrupt, StoreError


def compressor() -> Callable[[bytes], bytes]:
    """Return a function that compresses a node, for one thread at a time; StoreError without the package."""
    compress: Callable[[bytes], bytes] = _zstandard().ZstdCompressor().compress
    return compress


def decompress(data: bytes, size: int) -> bytes:
    """Return the `size` bytes that were compressed; Corrupt if these are others, StoreError without the package."""
    zstandard = _zstandard()
    try:
        if zstandard.frame_content_size(data) != size:  # before anything of this size is allocated
            raise Corrupt(f"a frame of zstd with {size} bytes is expected")
        found: bytes = zstandard.decompress(data)
    except (zstandard.ZstdError, MemoryError) as error:
        raise Corrupt(str(error)) from None
    return found


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise StoreError("zstd is missing: pip install 'rillet[zstd]'") from None
    return zstandard


__all__ = ["compressor", "decompress"]
