"""Help for tests of applications: a clock that a test moves, and the pytest plugin `rillet`.

    from rillet.testing import StoreClock

    clock = StoreClock()
    with clock.open() as store:                 # in memory; expiry, IDs, idle times and timeouts follow the clock
        store.execute("SET", "session", "x", "EX", 30)
        clock.advance(31)
        assert store.execute("GET", "session") is None

`plugin` defines the fixtures `rillet_store`, `rillet_redis`, `rillet_redis_async`, `rillet_url` and `rillet_clock`.
Every pytest run of the environment imports it, so this package imports the store on first use only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rillet.testing.clock import StoreClock

__all__ = ["StoreClock"]


def __getattr__(name: str) -> Any:
    if name != "StoreClock":
        raise AttributeError(f"module 'rillet.testing' has no attribute {name!r}")
    from rillet.testing.clock import StoreClock

    return StoreClock
