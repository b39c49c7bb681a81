"""LOLWUT: a picture and the version (Redis: lolwut.c).

    version   picture                                             arguments
    5         a field of squares that loses its order downwards   [columns] [squares in a row] [squares in a column]
    6         a skyline in grays                                  [columns] [rows]
    8         a poem, put together at random
    9         a Julia set (Valkey)                                [columns rows] [real imaginary]

Without VERSION, the picture is that of the server's own version, if there is one. Each picture has a limited size, so
that the command stays cheap.
"""

from __future__ import annotations

from collections.abc import Callable
from math import cos, pi, sin, sqrt
from random import choice, randint, random

from rillet.commands.arguments import float_value, integer
from rillet.commands.server import command
from rillet.errors import CommandError
from rillet.runtime.session import Session

_GRAYS = ("0;30;40", "0;90;100", "0;37;47", "0;97;107")  # terminal colors from black to white
_SHADES = " .:-=+*#%&@"
# The bits of a braille character by the position of its dots: columns, then rows.
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_VERSES = (
    ("the stream", "a key", "the log", "a late entry", "the last replica"),
    ("waits for", "remembers", "forgets", "follows", "outlives"),
    ("the morning", "its reader", "a lost message", "every second", "the sea"),
)


def _sizes(argv: list[bytes], *limits: tuple[int, int]) -> list[int]:
    """Return sizes from the arguments, or their defaults, between 1 and a maximum."""
    return [
        min(max(integer(argv[at]), 1), most) if at < len(argv) else default for at, (default, most) in enumerate(limits)
    ]  # fmt: skip


class Canvas:
    """A grid of dots, 0 or a color; dots outside of it are ignored."""

    def __init__(self, width: int, height: int, color: int = 0) -> None:
        self.width = width
        self.height = height
        self.rows = [bytearray([color]) * width for _ in range(height)]

    def dot(self, x: int, y: int, color: int = 1) -> None:
        """Set a dot."""
        if 0 <= x < self.width and 0 <= y < self.height:
            self.rows[y][x] = color

    def line(self, start: tuple[int, int], end: tuple[int, int]) -> None:
        """Draw a line, both ends included."""
        (x, y), (last_x, last_y) = start, end
        steps = max(abs(last_x - x), abs(last_y - y), 1)
        for step in range(steps + 1):
            self.dot(round(x + (last_x - x) * step / steps), round(y + (last_y - y) * step / steps))

    def braille(self) -> str:
        """Return the dots as braille characters, each of 2 x 4 dots."""
        lines = []
        for top in range(0, self.height, 4):
            line = ""
            for left in range(0, self.width, 2):
                bits = 0
                for column, values in enumerate(_DOTS):
                    for row, bit in enumerate(values):
                        y, x = top + row, left + column
                        if y < self.height and x < self.width and self.rows[y][x]:
                            bits |= bit
                line += chr(0x2800 + bits)
            lines.append(line)
        return "\n".join(lines)

    def colored(self) -> str:
        """Return the dots as colored spaces for a terminal."""
        return "\n".join("".join(f"\033[{_GRAYS[color]}m \033[0m" for color in row) for row in self.rows)


def _squares(argv: list[bytes]) -> str:
    columns, across, down = _sizes(argv, (66, 1000), (8, 200), (12, 200))
    width = columns * 2
    padding = 2 if width > 4 else 0
    side = (width - padding * 2) / across
    canvas = Canvas(width, int(side * down + padding * 2))
    for y in range(down):
        chaos = y / down if y > 1 else 0.0  # the first rows are in order
        for x in range(across):
            turn, right, lower = ((2 * random() - 1) * chaos for _ in range(3))
            center_x = int(x * side + side / 2 + padding + right * side / 3)
            center_y = int(y * side + side / 2 + padding + lower * side / 3)
            _square(canvas, center_x, center_y, side, turn)
    return canvas.braille() + "\nSquares that fall out of line, after a plotter drawing of 1968."


def _square(canvas: Canvas, x: int, y: int, side: float, turn: float) -> None:
    radius = round(side / sqrt(2))
    angles = [pi / 4 + turn + pi / 2 * corner for corner in range(4)]
    corners = [(round(sin(angle) * radius + x), round(cos(angle) * radius + y)) for angle in angles]
    for corner in range(4):
        canvas.line(corners[corner], corners[(corner + 1) % 4])


def _skyline(argv: list[bytes]) -> str:
    columns, rows = _sizes(argv, (80, 1000), (20, 1000))
    canvas = Canvas(columns, rows, 3)
    for color, tallest in ((2, 1.0), (1, 0.8), (0, 0.7)):  # from the background to the foreground
        left = -10
        while left < columns:
            left += randint(0, 7)
            width = randint(8, 18)
            _house(canvas, left, width, int(rows * (tallest - random() / 2)), color)
            left += width // 2 if color == 2 else width + (1 if color else 5)
    return canvas.colored() + "\nA town at night, after the backgrounds of 8-bit games."


def _house(canvas: Canvas, left: int, width: int, height: int, color: int) -> None:
    for y in range(canvas.height - height, canvas.height):
        roof = y == canvas.height - height
        for x in range(left + 2 * roof, left + width - 2 * roof):
            canvas.dot(x, y, color)
    if color == 0:
        for y in range(canvas.height - height + 2, canvas.height - 2, 2):
            for x in range(left + 2, left + width - 3, 4):
                light = randint(1, 2)
                canvas.dot(x, y, light)
                canvas.dot(x + 1, y, light)


def _poem(argv: list[bytes]) -> str:
    return "\n".join(" ".join(choice(words) for words in _VERSES) for _ in range(6)) + "\n"


def _julia(argv: list[bytes]) -> str:
    if len(argv) in (1, 3) or len(argv) > 4:
        raise CommandError("Syntax error. Use: LOLWUT [columns rows] [real imaginary]")
    columns, rows = _sizes(argv[:2], (80, 160), (40, 80))
    constant = complex(2 * random() - 1, 2 * random() - 1)
    if len(argv) == 4:
        constant = complex(float(float_value(argv[2])), float(float_value(argv[3])))
    lines = []
    for row in range(rows):
        imaginary = 2 - 4 * (row + 0.5) / rows
        lines.append("".join(_shade(complex(-2 + 4 * (column + 0.5) / columns, imaginary), constant)
                             for column in range(columns)))  # fmt: skip
    return "\n".join(lines) + f"\nThe Julia set of {constant.real:.2f} + {constant.imag:.2f}i."


def _shade(point: complex, constant: complex) -> str:
    """Return a character that is the denser, the longer the point stays near zero."""
    for shade in _SHADES:
        point = point * point + constant
        if abs(point) > 2:
            return shade
    return _SHADES[-1]


_PICTURES: dict[int, Callable[[list[bytes]], str]] = {5: _squares, 6: _skyline, 8: _poem}


@command("lolwut", arity=-1, flags="readonly fast", since="5.0.0", syntax="[VERSION version]", complexity="O(1)")
def lolwut(session: Session, argv: list[bytes]) -> None:
    """Draw a picture and show the version."""
    settings = session.engine.settings
    compat = settings.compat
    wanted, rest = int((compat.valkey_version if compat.valkey else compat.redis_version).split(".")[0]), argv[1:]
    if len(argv) >= 3 and argv[1].lower() == b"version":
        wanted, rest = integer(argv[2]), argv[3:]
        if wanted < 0:
            raise CommandError("Invalid version")
    pictures = {5: _squares, 6: _skyline, 9: _julia} if compat.valkey else _PICTURES
    draw = pictures.get(wanted)
    text = "" if draw is None else draw(rest) + " "
    is_valkey = compat.valkey and not settings.extended_redis_compatibility
    version = f"Valkey ver. {compat.valkey_version}" if is_valkey else f"Redis ver. {compat.redis_version}"
    session.out.verbatim(f"{text}{version}\n".encode())
