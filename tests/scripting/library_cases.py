"""Random calls of the Lua libraries, as Lua source; and the script that runs them and shows what they return.

A case is one chunk. The script calls it in a protected call and shows the results as text: numbers with 17 digits,
bytes escaped, tables in the order of their keys. The same script runs by EVAL on a server and in an interpreter of
ours.
"""

from __future__ import annotations

import random
import struct

DRIVER = rb"""
local show
local function text(value, depth)
    local kind = type(value)
    if kind == 'number' then return string.format('%.17g', value) end
    if kind == 'string' then
        local function escaped(c) return string.format('\\%03d', string.byte(c)) end
        return '"' .. string.gsub(value, '[^ -~]', escaped) .. '"'
    end
    if kind ~= 'table' then return tostring(value) end
    if depth > 60 then return '...' end
    local parts, ordered = {}, true
    for key, element in pairs(value) do
        if type(key) == 'table' then ordered = false end
        parts[#parts + 1] = '[' .. text(key, depth + 1) .. ']=' .. text(element, depth + 1)
    end
    if not ordered or KEYS[1] then table.sort(parts) end
    return '{' .. table.concat(parts, ',') .. '}'
end
function show(...)
    local parts = {}
    for index = 1, select('#', ...) do parts[index] = text((select(index, ...)), 0) end
    return table.concat(parts, ' ')
end
local results = {}
for index, source in ipairs(ARGV) do
    local chunk, problem = loadstring('local show = ... ' .. source, '=case')
    if chunk == nil then
        results[index] = 'syntax ' .. problem
    else
        local fine, result = pcall(chunk, show)
        results[index] = (fine and 'returns ' or 'raises ') .. tostring(result)
    end
end
return results
"""

SPECIAL_NUMBERS = (
    "0 0.5 1 -1 2 10 11 127 128 255 256 -32 -33 -128 -129 32767 32768 65535 65536 -32768 -32769 2147483647 2147483648 "
    "-2147483648 -2147483649 4294967295 4294967296 9007199254740991 9007199254740993 9223372036854775807 1e15 1e14 "
    "123456789012345 1e19 1.8446744073709552e19 1.8446744073709550e19 -9223372036854775808 -9.3e18 1e100 1e-5 1e-7 0.1 "
    "1.1 3.14159265358979 1e308 -0 5e-324 1.17549435e-38 1e-40 3.4028235677973366e38 3.5e38 1.5 2.5 -1.5 16777217 "
    "math.huge -math.huge (0/0) -(0/0) 2^31 2^32 2^51 2^52 2^53 -2^51 -2^52 2^63 -2^63 2^64 2^70 6755399441055744 "
    "-6755399441055744 4503599627370495.5 0.49999999999999994"
).split()

OTHER_VALUES = (b"true", b"false", b"cjson.null", b"nil", b"coroutine.create(function() end)", b"tostring", b'"12"',
                b'" 0x10 "')  # fmt: skip

JSON_NUMBERS = (
    b"0 -0 1 -1 12 1.5 1e5 1E-5 1e+400 0x10 0X1p4 0x 0x. 0x.8 0x1. 01 - -.5 .5 5. +1 1e 1e+ inf -inf Infinity "
    b"-INFINITYx infinit nan NaN -nan nan(12) nan( 1.2.3 --1 i N + +inf -0x1P-2x 9007199254740993 4.9e-324 "
    b"123456789012345678901234567890 " + b"1" * 400
).split()

JSON_ESCAPES = (
    b'\\n \\t \\" \\\\ \\/ \\b \\f \\r \\u0041 \\u00e9 \\u20ac \\u0000 \\ud83d\\ude00 \\uD83D\\uDE00 '
    b"a b \xc3\xa9 \xff key id"
).split()

WRONG_ESCAPES = b"\\x \\u12 \\ud800 \\udc00 \\ud800\\u0041 \\ud83d\\n \\ \0 \\uzzzz \\U0041".split()

JSON_OPTIONS = (
    b"encode_sparse_array encode_max_depth decode_max_depth encode_number_precision encode_keep_buffer "
    b"encode_invalid_numbers decode_invalid_numbers decode_array_with_array_mt"
).split()

OPTION_VALUES = (
    b"true false 'on' 'off' 'null' nil 0 1 2 3 14 15 '7' 1.9 -1 2^31 2^32+5 {} 'x' 1e300 0/0 '' 'on\\0'"
).split()

OFFSETS = b"|, 0|, 1|, 2|, -1|, 100|, 2^32|, '1'|, nil|, {}|, 1.9".split(b"|")
POSITIONS = b"|||, 1|, 2|, 0|, -5|, nil|, 3.7|, 200|, '2'|, {}".split(b"|")
UNPACK_ARGUMENTS = b"|nil|12|{}|true|nil, nil|'\\1', 1, 1, 1".split(b"|")
STRUCT_ARGUMENTS = b"|nil|{}|'i'|12|'i', nil|'c0', '12'".split(b"|")
DIGITS = b"0 1 4 8 9 -1 -8 -9 2^31-1 nil '3'".split()
ODD_OPTIONS = b"x x xx !3 !0 z i33 i99999999999 = \\255 \\0b 9".split()

BAD_PACKED = (b"\xc1", b"\xc4\x01a", b"\xd4\x01a", b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
              b"\xdf\xff\xff\xff\xff", b"\xc9")  # fmt: skip

# Bytes that mean something to one of the libraries.
SPECIAL_BYTES = b'"\\/\b\t\n\f\r\0\x7f\x80\xc3\xa9\xff{}[]:,x'


def lua_string(value: bytes) -> bytes:
    """Return a Lua literal of the bytes."""
    return b'"' + b"".join(b"\\%03d" % byte for byte in value) + b'"'


class Cases:
    """A source of random cases. Every method returns Lua source."""

    def __init__(self, seed: int, *, one_key: bool = False) -> None:
        """Make a source of its own. With `one_key`, no table has two strings as keys: their order is the server's."""
        self.random = random.Random(seed)
        self.one_key = one_key

    def number(self) -> bytes:
        """Return a number: a special one, a small integer, or a random double."""
        choice = self.random.random()
        if choice < 0.4:
            return self.random.choice(SPECIAL_NUMBERS).encode()
        if choice < 0.6:
            return str(self.random.randint(-300, 300)).encode()
        if choice < 0.75:
            return str(
                self.random.randint(-(2 ** self.random.randint(1, 64)), 2 ** self.random.randint(1, 64))
            ).encode()
        if choice < 0.9:
            return repr(self.random.uniform(-1, 1) * 10 ** self.random.randint(-50, 50)).encode()
        while True:
            (value,) = struct.unpack("<d", self.random.randbytes(8))
            if value == value and abs(value) != float("inf"):
                return repr(value).encode()

    def raw_bytes(self, limit: int = 12) -> bytes:
        """Return a short string, sometimes one of a size at which formats change."""
        choice = self.random.random()
        if choice < 0.05:
            return b"a" * self.random.choice((31, 32, 33, 255, 256, 257))
        if choice < 0.5:
            return bytes(self.random.choices(b"abcxyz019 ", k=self.random.randint(0, limit)))
        if choice < 0.8:
            return bytes(self.random.choices(SPECIAL_BYTES, k=self.random.randint(0, limit)))
        return self.random.randbytes(self.random.randint(0, limit))

    def scalar(self) -> bytes:
        """Return a value that is not a table."""
        choice = self.random.random()
        if choice < 0.45:
            return self.number()
        if choice < 0.8:
            return lua_string(self.raw_bytes())
        return self.random.choice(OTHER_VALUES)

    def value(self, depth: int = 0) -> bytes:
        """Return a value, often a table."""
        if depth > 3 or self.random.random() < (0.2, 0.5, 0.6, 0.8)[depth]:
            return self.scalar()
        choice = self.random.random()
        size = self.random.choice((0, 1, 1, 2, 2, 3, 4, 5, 15, 16, 17)) if depth == 0 else self.random.randint(0, 3)
        if choice < 0.45:
            return b"{" + b",".join(self.value(depth + 1) for _ in range(size)) + b"}"
        keys = []
        if self.one_key and choice < 0.75:
            size = min(size, 1)
        for _ in range(size):
            if choice < 0.75:
                key = lua_string(self.raw_bytes(4)[:31])
            elif choice < 0.9:
                key = str(self.random.choice((1, 2, 3, 5, 8, 10, 11, 12, 25, 50, 1000))).encode()
            else:
                key = self.random.choice((b"true", self.number(), lua_string(b"k"), b"0", b"-1", b"1.5"))
                if b"0/0" in key:
                    key = b"7"
            keys.append(b"[" + key + b"]=" + self.value(depth + 1))
        return b"{" + b",".join(keys) + b"}"

    def nested(self) -> bytes:
        """Return source that sets `v` to a deeply nested table."""
        levels = self.random.choice((14, 15, 16, 17, 18, 999, 1000, 1001, 1500))
        key = self.random.choice((b"1", b'"k"'))
        return b"local v = {} for i = 1, %d do v = {[%b]=v} end " % (levels, key)

    def calling(self, function: bytes, arguments: bytes) -> bytes:
        """Return a call that shows all results; a direct one, a method or below pcall."""
        choice = self.random.random()
        library, name = function.split(b".")
        if choice < 0.8:
            return b"return show(%b(%b))" % (function, arguments)
        if choice < 0.9:
            return b"return show(pcall(%b%b%b))" % (function, b"," if arguments else b"", arguments)
        if choice < 0.95 or (self.one_key and function == b"cmsgpack.pack"):
            return b"local f = %b return show(f(%b))" % (function, arguments)
        return b"return show(%b:%b(%b))" % (library, name, arguments)

    # cjson

    def json_text(self, depth: int = 0) -> bytes:
        """Return JSON, in most cases valid."""
        pick = self.random.random
        space = self.random.choice((b"", b"", b"", b" ", b"\n\t\r "))
        if depth > 4 or pick() < (0.25 if depth == 0 else 0.55):
            choice = pick()
            if choice < 0.35:
                number = self.random.choice(JSON_NUMBERS)
                return space + number + space
            if choice < 0.75:
                return space + self.json_string() + space
            words = (b"true", b"false", b"null", b"True", b"tru", b"nul", b"nil", b"\0", b"?", b"")
            return space + self.random.choices(words, (4, 4, 4, 1, 1, 1, 1, 1, 1, 1))[0] + space
        size = self.random.randint(0, 4)
        comma = b"," if pick() < 0.97 else self.random.choice((b";", b",,", b"", b":"))
        if pick() < 0.5:
            return space + b"[" + comma.join(self.json_text(depth + 1) for _ in range(size)) + b"]" + space
        colon = b":" if pick() < 0.97 else self.random.choice((b"=", b"", b"::", b","))
        size = min(size, 1) if self.one_key else size
        members = [self.json_string() + colon + self.json_text(depth + 1) for _ in range(size)]
        return space + b"{" + comma.join(members) + b"}" + space

    def json_string(self) -> bytes:
        """Return a JSON string with escapes, some of them wrong."""
        parts = self.random.choices(JSON_ESCAPES, k=self.random.randint(0, 4))
        if self.random.random() < 0.04:
            parts.append(self.random.choice(WRONG_ESCAPES))
        return b'"' + b"".join(parts) + (b'"' if self.random.random() < 0.99 else b"")

    def json_case(self) -> bytes:
        """Return a call of cjson."""
        choice = self.random.random()
        if choice < 0.35:
            return self.calling(b"cjson.encode", self.value())
        if choice < 0.65:
            text = self.json_text()
            if self.random.random() < 0.1 and text:
                place = self.random.randrange(len(text))
                other = self.random.choice((b"", bytes(self.random.choices(SPECIAL_BYTES))))
                text = text[:place] + other + text[place + 1 :]
            return self.calling(b"cjson.decode", lua_string(text))
        if choice < 0.72:
            return b"return show(cjson.encode(cjson.decode(%b)))" % lua_string(self.json_text())
        if choice < 0.77:
            return self.nested() + b"return show(#cjson.encode(v))"
        if choice < 0.8:
            levels, opening = self.random.choice((1, 999, 1000, 1001, 2000)), self.random.choice((b"[", b'{"a":'))
            closing = b"]" if opening == b"[" else b"}"
            return b"return show(#cjson.encode(cjson.decode(('%b'):rep(%d) .. '1' .. ('%b'):rep(%d))))" % (
                opening,
                levels,
                closing,
                levels,
            )
        if choice < 0.83:
            arguments = self.random.choice((b"", b"1, 2", b"nil", b"{}", b"true", b"12", b"'[1]', nil"))
            return self.calling(self.random.choice((b"cjson.encode", b"cjson.decode")), arguments)
        return self.json_settings()

    def json_settings(self) -> bytes:
        """Return calls on a cjson with settings of its own."""
        option = self.random.choice(JSON_OPTIONS)
        count = self.random.randint(0, 4) if option == b"encode_sparse_array" else self.random.choice((0, 1, 1, 1, 2))
        arguments = b", ".join(self.random.choices(OPTION_VALUES, k=count))
        if self.random.random() < 0.4:
            good = {
                b"encode_sparse_array": (b"true", b"true, 0", b"false, 3, 2", b"true, 2, 0", b"true, 2^31 - 1, 3"),
                b"encode_max_depth": (b"1", b"2", b"4"),
                b"decode_max_depth": (b"1", b"2", b"4"),
                b"encode_number_precision": (b"1", b"3", b"10", b"14"),
            }
            arguments = self.random.choice(good.get(option, (b"true", b"false", b"'null'")))
        source = b"local j = cjson.new() local set = show(pcall(j.%b%b%b)) " % (
            option,
            b", " if arguments else b"",
            arguments,
        )
        if self.random.random() < 0.5:
            use = b"j.encode, " + self.value()
        else:
            use = b"j.decode, " + lua_string(self.json_text())
        if option == b"decode_array_with_array_mt" and self.random.random() < 0.5:
            return source + b"return show(set, pcall(j.encode, (j.decode(%b))))" % lua_string(self.json_text())
        if self.random.random() < 0.3:
            return source + b"return set .. show(j.%b(%b))" % (option, arguments)
        return source + b"return set .. ' ' .. show(pcall(%b)) .. show(j.%b())" % (use, option)

    # cmsgpack

    def packed(self, depth: int = 0) -> bytes:
        """Return MessagePack, in most cases valid."""
        choose, bits = self.random.choice, self.random.randbytes
        if depth < 4 and self.random.random() < 0.5:
            size = self.random.choice((0, 1, 2, 3, 4))
            wide = self.random.random()
            array = self.random.random() < 0.5
            if self.one_key and not array:
                size = min(size, 1)
            if wide < 0.7:
                head = bytes([(0x90 if array else 0x80) + size])
            elif wide < 0.85:
                head = (b"\xdc" if array else b"\xde") + struct.pack(">H", size)
            else:
                head = (b"\xdd" if array else b"\xdf") + struct.pack(">I", size)
            if array:
                return head + b"".join(self.packed(depth + 1) for _ in range(size))
            return head + b"".join(self.packed_key() + self.packed(depth + 1) for _ in range(size))
        sizes = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xCA: 4, 0xCB: 8}
        choice = self.random.random()
        if choice < 0.4:
            mark = choose(list(sizes))
            # A payload of a NaN is lost, so the exponent is never the largest one.
            value = bits(sizes[mark])
            if mark in {0xCA, 0xCB} and value[0] & 0x7F == 0x7F and value[1] & 0x80:
                value = value[:1] + bytes(len(value) - 1)
            return bytes([mark]) + value
        if choice < 0.7:
            text = self.raw_bytes()
            form = self.random.random()
            if form < 0.6 and len(text) < 32:
                return bytes([0xA0 + len(text)]) + text
            if form < 0.8 and len(text) < 256:
                return b"\xd9" + bytes([len(text)]) + text
            return choose((b"\xda" + struct.pack(">H", len(text)), b"\xdb" + struct.pack(">I", len(text)))) + text
        if choice >= 0.98:
            return choose(BAD_PACKED)
        return choose((b"\xc0", b"\xc2", b"\xc3", bytes([choose(range(0x80))]), bytes([choose(range(0xE0, 0x100))])))

    def packed_key(self) -> bytes:
        """Return MessagePack of a key whose place in a table is the same everywhere: a short string or a number."""
        key = self.packed(depth=9)
        while key[:1] in {b"\xd9", b"\xda", b"\xdb"}:
            key = self.packed(depth=9)
        return key

    def pack_case(self) -> bytes:
        """Return a call of cmsgpack."""
        choice = self.random.random()
        if choice < 0.4:
            count = self.random.choice((0, 1, 1, 1, 1, 2, 3))
            return self.calling(b"cmsgpack.pack", b", ".join(self.value() for _ in range(count)))
        data = b"".join(self.packed() for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))))
        if self.random.random() < 0.15:
            data = data[: self.random.randint(0, len(data))]
        if choice < 0.6:
            return self.calling(b"cmsgpack.unpack", lua_string(data))
        if choice < 0.65:
            return b"return show(cmsgpack.pack(cmsgpack.unpack(%b)))" % lua_string(data)
        if choice < 0.7:
            return self.nested() + b"return show(cmsgpack.pack(v))"
        if choice < 0.72:
            opening = self.random.choice((rb"\145", rb"\129\1", rb"\129", rb"\220\0\1", rb"\223\0\0\0\1\1"))
            levels = self.random.choice((100, 3990, 3998, 3999, 4000, 4001, 5000))
            return b"return show(cmsgpack.unpack(('%b'):rep(%d) .. '\\1'))" % (opening, levels)
        if choice < 0.73:
            return b"return show(select('#', cmsgpack.unpack(('\\1'):rep(%d))))" % self.random.choice(
                (7000, 8000, 9000)
            )
        offset = self.random.choice(OFFSETS)
        if choice < 0.86:
            return self.calling(b"cmsgpack.unpack_one", lua_string(data) + offset)
        if choice < 0.96:
            limit = self.random.choice((b"0", b"1", b"2", b"-1", b"100", b"'1'", b"nil", b"{}", b"2^31"))
            return self.calling(b"cmsgpack.unpack_limit", lua_string(data) + b", " + limit + offset)
        function = self.random.choice((b"cmsgpack.unpack", b"cmsgpack.unpack_one", b"cmsgpack.unpack_limit"))
        return self.calling(function, self.random.choice(UNPACK_ARGUMENTS))

    # bit

    def bit_case(self) -> bytes:
        """Return a call of bit."""
        function = self.random.choice(b"tobit bnot band bor bxor lshift rshift arshift rol ror bswap tohex".split())
        count = self.random.choice((0, 1, 2, 2, 2, 2, 3, 4))
        arguments = []
        for _ in range(count):
            if self.random.random() < 0.06:
                arguments.append(self.random.choice((b"nil", b"'12'", b"'0x1F'", b"'x'", b"{}", b"true", b"' 7 '")))
            else:
                arguments.append(self.number())
        if function == b"tohex" and count > 1:
            arguments[1] = self.random.choice(DIGITS)
        return self.calling(b"bit." + function, b", ".join(arguments))

    # struct

    def layout(self) -> tuple[bytes, list[bytes]]:
        """Return a format and values for it."""
        layout, values = b"", []
        for _ in range(self.random.randint(0, 6)):
            choice = self.random.random()
            if choice < 0.15:
                layout += self.random.choice((b">", b"<", b" ", b"!", b"!1", b"!2", b"!4", b"!8", b"!16"))
            elif choice < 0.2:
                layout += self.random.choice(ODD_OPTIONS)
            elif choice < 0.65:
                option = self.random.choice((b"b", b"B", b"h", b"H", b"l", b"L", b"T", b"i", b"I"))
                if option in b"iI" and self.random.random() < 0.7:
                    option += str(self.random.choice((0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 31, 32))).encode()
                layout += option
                values.append(self.number())
            elif choice < 0.8:
                layout += self.random.choice((b"f", b"d"))
                values.append(self.number())
            else:
                layout += self.random.choice((b"s", b"c0", b"c", b"c2", b"c5"))
                values.append(lua_string(self.raw_bytes()))
        return layout, values

    def struct_case(self) -> bytes:
        """Return a call of struct."""
        layout, values = self.layout()
        for place in range(len(values)):
            if self.random.random() < 0.02:
                values[place] = self.random.choice((b"nil", b"{}", b"'12'", b"'x'", b"true", b"12"))
        if self.random.random() < 0.04 and values:
            values.pop()
        quoted = b"'" + layout + b"'"
        choice = self.random.random()
        if choice < 0.35:
            return self.calling(b"struct.pack", b", ".join([quoted, *values]))
        if choice < 0.65:
            return b"local p = struct.pack(%b) return show(#p, struct.unpack(%b, p))" % (
                b", ".join([quoted, *values]),
                quoted,
            )
        if choice < 0.9:
            # A payload of a NaN is lost, so no exponent is the largest one.
            data = self.random.randbytes(self.random.choice((0, 3, 8, 20, 40, 100)))
            data = lua_string(data.replace(b"\x7f", b"\x7e").replace(b"\xff", b"\xfe"))
            position = self.random.choice(POSITIONS)
            return self.calling(b"struct.unpack", quoted + b", " + data + position)
        if choice < 0.98:
            return self.calling(b"struct.size", quoted)
        function = self.random.choice((b"struct.pack", b"struct.unpack", b"struct.size"))
        return self.calling(function, self.random.choice(STRUCT_ARGUMENTS))

    def case(self) -> bytes:
        """Return a call of any library."""
        return self.random.choice((self.json_case, self.json_case, self.pack_case, self.bit_case, self.struct_case))()
