"""RQ: jobs, retries, the registry of failed jobs, scheduled jobs, results."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.frameworks.apps import rq_jobs
from tests.waiting import until

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


def test_a_worker_process_runs_retries_and_schedules(served):
    from redis import Redis
    from rq import Queue, Retry

    with Redis.from_url(served.url) as connection:
        queue = Queue("work", connection=connection)
        with served.worker("rq.cli", "worker", "--url", served.url, "--with-scheduler", "work"):
            added = queue.enqueue(rq_jobs.add, 2, 3)
            flaky = queue.enqueue(rq_jobs.flaky, retry=Retry(max=2))
            later = queue.enqueue_in(timedelta(seconds=1), rq_jobs.add, 20, 3)
            broken = queue.enqueue(rq_jobs.broken)
            assert later.id in queue.scheduled_job_registry
            after = queue.enqueue(rq_jobs.add, 1, 1, depends_on=[added, flaky])
            until(lambda: all(job.get_status(refresh=True) == "finished" for job in (added, flaky, later, after)))
            until(lambda: broken.id in queue.failed_job_registry)
            assert [job.return_value() for job in (added, flaky, later, after)] == [5, 2, 23, 2]
            assert "ValueError: broken" in broken.latest_result().exc_string
            assert queue.count == 0


def test_a_worker_in_this_process(store):
    from rq import Queue, Retry, SimpleWorker

    connection = store.redis()
    queue = Queue("work", connection=connection)
    rq_jobs._RUNS.clear()
    added = queue.enqueue(rq_jobs.add, 2, 3)
    flaky = queue.enqueue(rq_jobs.flaky_here, retry=Retry(max=2))
    broken = queue.enqueue(rq_jobs.broken)
    assert SimpleWorker([queue], connection=connection).work(burst=True)
    assert added.return_value() == 5
    assert flaky.return_value() == 2
    assert broken.id in queue.failed_job_registry
    assert queue.failed_job_registry.requeue(broken.id).id == broken.id
    assert queue.job_ids == [broken.id]
