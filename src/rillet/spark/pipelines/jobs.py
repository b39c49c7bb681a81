"""Jobs: what the rounds of a running pipeline did, and the HTTP port that shows it.

    job = Job("orders", every=30.0)
    with job:                       a round; its end is a success
        job.progress(5, 100)        rows of this attempt, and how many there will be
    with served([job], ("127.0.0.1", 9122)):
        GET /metrics                for Prometheus, by job
        GET /healthz                200, or 503 with a line for each job that has failed or is overdue

A job is overdue if neither a round nor a batch has ended for three intervals, and for a minute at least. So a round
that takes hours to catch up is healthy while it writes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from rillet.errors import RilletError
from rillet.extras import require
from rillet.real_time import monotonic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERVALS = 3  # without progress, after which a job is overdue
SECONDS = 60.0  # and at least this long


class Job:
    """A running pipeline. The context manager surrounds a round, and notes its success."""

    def __init__(
        self, name: str, every: float | None = None, session: Callable[[], SparkSession] | None = None
    ) -> None:
        """every: seconds between rounds. session: returns the Spark session that jobs share, None for its own one."""
        self.name, self.every, self.session = name, every, session
        self.stop = threading.Event()  # set: the job ends after its batch
        self.rows = self.failures = 0
        self.behind: int | None = None  # entries that the round still has to write
        self.succeeded: float | None = None  # seconds since 1970
        self.seconds: float | None = None  # of the last successful round
        self.error = ""  # of the last round, if it failed
        self.ended = False
        self._earlier = 0  # rows of earlier attempts
        self._seen = self._began = monotonic()

    def progress(self, done: int, total: int | None = None) -> None:
        """Note the rows of this attempt, and how many they will be."""
        self.rows = self._earlier + done
        self.behind = None if total is None else max(total - done, 0)
        self._seen = monotonic()

    def __enter__(self) -> None:
        self._began = monotonic()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.succeeded, self.error, self._seen = time.time(), "", monotonic()
            self.seconds = self._seen - self._began

    def fail(self, error: str) -> None:
        """Note a failed round; the next attempt counts its rows from 0."""
        self.failures += 1
        self.error, self._earlier = error, self.rows

    def problem(self) -> str | None:
        """Return what is wrong with the job now."""
        if self.error:
            return self.error
        idle = monotonic() - self._seen
        if self.every is None or self.ended or idle <= max(INTERVALS * self.every, SECONDS):
            return None
        return f"overdue: no progress for {idle:.0f} s"


# ---- HTTP ---------------------------------------------------------------------------------------------------------


class _Metrics:
    """What prometheus_client asks for metrics."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs

    def collect(self) -> Iterator[Any]:
        """Yield the families."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for family, name, about, value in (
            (GaugeMetricFamily, "last_success_timestamp_seconds", "End of the last successful round",
             lambda job: job.succeeded),
            (GaugeMetricFamily, "last_duration_seconds", "Duration of this round", lambda job: job.seconds),
            (GaugeMetricFamily, "lag_entries", "Entries that were found and not written", lambda job: job.behind),
            (GaugeMetricFamily, "healthy", "0 if the job has failed or is overdue", lambda job: not job.problem()),
            (CounterMetricFamily, "rows", "Entries, changes or samples that were written", lambda job: job.rows),
            (CounterMetricFamily, "failures", "Rounds that failed", lambda job: job.failures),
        ):  # fmt: skip
            found = family(f"rillet_pipeline_{name}", about, labels=["job"])
            for job in self._jobs:
                if (number := value(job)) is not None:
                    found.add_metric([job.name], number)
            yield found


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = 5  # seconds for a request

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def served(jobs: Sequence[Job], place: tuple[str, int] | None) -> Iterator[None]:
    """Serve the state of jobs at an address and a port; raise RilletError if that fails."""
    if place is None:
        yield
        return
    require("metrics", "--metrics-port")
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry()
    registry.register(_Metrics(jobs))
    metrics: Any = make_wsgi_app(registry)

    def answer(environ: Any, start: Any) -> Any:
        if environ["PATH_INFO"] == "/metrics":
            return metrics(environ, start)
        status, lines = "404 Not Found", ["the paths are /metrics and /healthz"]
        if environ["PATH_INFO"] == "/healthz":
            lines = [f"{job.name}: {text}" for job in jobs if (text := job.problem())]
            status = "503 Service Unavailable" if lines else "200 OK"
        start(status, [("Content-Type", "text/plain; charset=utf-8")])
        return ["".join(f"{line}\n" for line in lines or ["ok"]).encode()]

    try:
        server = make_server(*place, answer, _Server, _Handler)
    except OSError as error:
        raise RilletError(f"rillet: --metrics-port: {place[0]}:{place[1]}: {error.strerror or error}") from None
    threading.Thread(target=server.serve_forever, name="rillet-metrics", daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
