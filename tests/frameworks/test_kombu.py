"""Kombu: direct, topic and fanout exchanges, priorities, acknowledgements, what a lost consumer leaves."""

from __future__ import annotations

import contextlib

import pytest

from tests.waiting import until

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


def _drain(*connections):
    """Let each connection handle what has arrived."""
    for connection in connections:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.1)


def _drained(connection, consumers, wanted):
    """Return the messages that the consumers receive, once there are as many as wanted."""
    from kombu import Consumer

    received: list = []

    def take(body, message):
        received.append(body)
        message.ack()

    with Consumer(connection, consumers, callbacks=[take], accept=["json"]):

        def drained():
            _drain(connection)
            return len(received) >= wanted

        until(drained, f"{wanted} messages")
    return received


def test_exchanges(served):
    from kombu import Connection, Exchange, Queue

    with Connection(served.url) as connection, Connection(served.url) as receiving:
        direct = Queue("jobs", Exchange("work", type="direct"), routing_key="jobs")
        topic = Queue("errors", Exchange("logs", type="topic"), routing_key="*.error")
        producer = connection.Producer(serializer="json")
        producer.publish({"n": 1}, exchange=direct.exchange, routing_key="jobs", declare=[direct])
        producer.publish("yes", exchange=topic.exchange, routing_key="disk.error", declare=[topic])
        producer.publish("no", exchange=topic.exchange, routing_key="disk.info", declare=[topic])
        assert sorted(map(str, _drained(receiving, [direct, topic], 2))) == ["yes", "{'n': 1}"]


def test_fanout(served):
    from kombu import Connection, Consumer, Exchange, Queue

    news = Exchange("news", type="fanout")
    received: list = []

    def take(body, message):
        received.append(body)

    with Connection(served.url) as sending, Connection(served.url) as one, Connection(served.url) as two:
        queues = [Queue(name, news, exclusive=True, auto_delete=True) for name in ("first", "second")]
        with Consumer(one, queues[:1], callbacks=[take], no_ack=True), \
             Consumer(two, queues[1:], callbacks=[take], no_ack=True), served.client() as client:  # fmt: skip

            def subscribed():
                _drain(one, two)
                return sum(int(one["sub"]) + int(one["psub"]) for one in client.client_list()) == 2

            until(subscribed, "the subscriptions")
            sending.Producer().publish("hello", exchange=news, declare=[news])

            def arrived():
                _drain(one, two)
                return len(received) == 2

            until(arrived, "both messages")
    assert received == ["hello", "hello"]


def test_priorities_and_rejection(served):
    from kombu import Connection, Queue

    queue = Queue("prior", max_priority=9)
    with Connection(served.url, transport_options={"priority_steps": [0, 3, 6, 9]}) as connection:
        producer = connection.Producer()
        for priority in (9, 0, 6):
            producer.publish(priority, routing_key="prior", priority=priority, declare=[queue])
        bound = queue(connection.default_channel)
        bodies = []
        for _ in range(3):
            message = bound.get()
            bodies.append(message.payload)
            message.ack()
        assert bodies == [0, 6, 9]
        simple = connection.SimpleQueue("simple")
        simple.put("again")
        simple.get(timeout=5).requeue()
        message = simple.get(timeout=5)
        assert message.delivery_info["routing_key"] == "simple"
        message.ack()
        simple.close()


def test_a_lost_consumer(served):
    from kombu import Connection

    options = {"visibility_timeout": 1, "unacked_restore_limit": 10}
    with Connection(served.url, transport_options=options) as lost:
        queue = lost.SimpleQueue("tasks")
        queue.put("survives")
        taken = queue.get(timeout=5)
        assert taken.payload == "survives"
        with served.client() as client:
            assert client.hlen("unacked") == 1
        with Connection(served.url, transport_options=options) as other:

            def restored():
                other.default_channel.qos.restore_visible(interval=1)
                return other.default_channel.basic_get("tasks")

            message = until(restored, "the message")
            assert message.payload == "survives"
