"""The end of a load: nothing runs between the last command of the files and the caller."""

from __future__ import annotations

import asyncio

from rillet.runtime.engine import Engine
from rillet.server.serve_while_loading import LoadingPhase, Progress


def test_no_timer_runs_between_the_end_of_a_load_and_its_caller() -> None:
    """A key that expired there would be deleted in the log, but not in the stream of replicas."""
    engine = Engine()
    seen: list[bool] = []

    def job(progress: Progress) -> None:
        engine.execute(engine.session(trusted=True), [b"SET", b"a", b"1"])
        progress(1, 2)

    async def load() -> list[bool]:
        loop = asyncio.get_running_loop()

        def watch() -> None:
            seen.append(engine.loading)
            loop.call_soon(watch)

        loop.call_soon(watch)
        await asyncio.sleep(0)
        seen.clear()
        assert await LoadingPhase(engine).run(job, lambda: False)
        return list(seen)

    assert set(asyncio.run(load())) <= {True}
    assert not engine.loading
