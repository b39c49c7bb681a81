"""redis-om: hash models by primary key (search and JSON models need modules of Redis)."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.environment("RILLET_FRAMEWORKS")


def test_hash_models(client):
    import redis
    from redis_om import HashModel, NotFoundError

    pool = client.connection_pool
    pool.connection_kwargs["decode_responses"] = True
    database = redis.Redis(connection_pool=pool)

    class Customer(HashModel, index=True):  # the name of a key needs it; no index is created without a Migrator
        name: str
        age: int

    Customer._meta.database = database
    ann = Customer(name="Ann", age=30)
    ann.save()
    assert Customer.get(ann.pk) == ann
    assert database.hget(ann.key(), "name") == "Ann"
    ann.age = 31
    ann.save()
    assert Customer.get(ann.pk).age == 31
    bob = Customer(name="Bob", age=40)
    Customer.add([bob])
    assert sorted(Customer.all_pks()) == sorted([ann.pk, bob.pk])
    bob.expire(100)
    assert 0 < database.ttl(bob.key()) <= 100
    assert Customer.delete(ann.pk) == 1
    with pytest.raises(NotFoundError):
        Customer.get(ann.pk)
