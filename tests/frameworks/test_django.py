"""Django's cache on its own backend, and on that of django-redis, with its locks and patterns."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


@pytest.fixture
def caches(served):
    """Django's caches, with one backend each."""
    from django.conf import settings
    from django.core.cache import caches

    configured = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": served.url},
        "other": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": served.url},
    }
    if not settings.configured:
        settings.configure(CACHES=configured)
    yield caches
    caches.close_all()


@pytest.mark.parametrize("name", ["default", "other"])
def test_a_cache(caches, name):
    cache = caches[name]
    cache.set("one", {"a": [1, None]}, timeout=60)
    assert cache.get("one") == {"a": [1, None]}
    assert not cache.add("one", 2)
    cache.set("count", 1)
    assert [cache.incr("count", 4), cache.decr("count")] == [5, 4]
    assert cache.touch("one", 1000)
    cache.set_many({"a": 1, "b": b"bytes"}, timeout=None)
    assert cache.get_many(["a", "b", "none"]) == {"a": 1, "b": b"bytes"}
    assert cache.get_or_set("computed", lambda: 7) == 7
    cache.delete_many(["a", "b"])
    assert not cache.has_key("a")
    cache.set("gone", 1, timeout=0)
    assert cache.get("gone", "missing") == "missing"
    assert cache.incr_version("one") == 2
    with pytest.raises(ValueError, match="not found"):
        cache.incr("none")
    cache.clear()
    assert cache.get("one", version=2) is None


def test_what_django_redis_adds(caches):
    cache = caches["other"]
    cache.set("page:1", "x", timeout=100)
    cache.set("page:2", "y", timeout=None)
    assert sorted(cache.keys("page:*")) == ["page:1", "page:2"]
    assert 0 < cache.ttl("page:1") <= 100
    assert cache.ttl("page:2") is None
    assert cache.persist("page:1")
    assert cache.expire("page:1", timeout=9)
    with cache.lock("door", timeout=5):
        assert not cache.lock("door", timeout=5).acquire(blocking=False)
    assert cache.incr("fresh", ignore_key_check=True) == 1
    assert cache.delete_pattern("page:*") == 2


def test_sessions(caches):
    from django.contrib.sessions.backends.cache import SessionStore

    session = SessionStore()
    session["user"] = 42
    session.save()
    assert SessionStore(session.session_key)["user"] == 42
    session.flush()
    assert "user" not in SessionStore(session.session_key)
