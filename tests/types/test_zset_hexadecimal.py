"""A listpack with a hexadecimal score, in a payload that no server wrote, is read as in Redis."""

from __future__ import annotations

from rillet.structs.listpack import Listpack
from rillet.types.encoding_limits import DEFAULTS
from rillet.types.rdb import zset
from rillet.types.rdb.primitives import RdbReader, RdbWriter


def test_a_hexadecimal_score_is_a_number() -> None:
    packed = Listpack()
    for word in (b"a", b"0x1p3", b"b", b"0X1.8p+3"):
        packed.append(word)
    out = RdbWriter()
    out.string(packed.to_bytes())
    value = zset.LOADERS[zset.TYPE_ZSET_LISTPACK](RdbReader(bytes(out.out)), DEFAULTS)
    assert list(value) == [(b"a", 8.0), (b"b", 12.0)]
    assert value.rank(b"b") == 1
    value.add(b"c", 9.0)
    value.check()
    assert [member for member, _ in value] == [b"a", b"c", b"b"]
