"""A pen for the pictures of the documentation: boxes, arrows and texts become one SVG.

An SVG has the colours of light and dark mode, and real text in fonts of the reader's system. The
pen refuses to draw a text that does not fit, that overlaps another one, or that an arrow crosses.
"""

import math
import re
from html import escape

SIZES = {"": 14, "small": 13, "title": 15, "code": 13, "number": 13}
LINE = 18
# Widths in thousandths of the font size: those of DejaVu Sans, the widest of the usual fonts.
WIDTHS = {
    300: " ',.IJijl’·",
    350: "-/:;\\f|",
    400: "!()[]rt",
    450: '"',
    500: "*_`s–",
    550: "?Lcz",
    600: "FPTYaekovxy",
    650: "$0123456789EKSbdghnpqu{}",
    700: "ABCRVXZ",
    750: "DHNU",
    800: "&GOQw",
    850: "#+<=>M^~×→←",
    950: "%m",
    1000: "@W…",
}
WIDTH = {character: width for width, characters in WIDTHS.items() for character in characters}
BOLD, CODE = 1.1, 602

FONT = "system-ui,-apple-system,'Segoe UI','Noto Sans',Helvetica,Arial,sans-serif"
CODE_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'Liberation Mono',monospace"

# For each kind of box or arrow: its lines and its surface, in light and in dark mode.
KINDS = {
    "plain": ("#818b98", "#f6f8fa", "#7d8590", "#161b22"),
    "queue": ("#0969da", "#ddf4ff", "#4493f8", "#12233d"),
    "requeue": ("#8250df", "#fbefff", "#ab7df8", "#211a38"),
    "good": ("#1a7f37", "#dafbe1", "#3fb950", "#12291b"),
    "retry": ("#9a6700", "#fff8c5", "#d29922", "#2c230f"),
    "bad": ("#cf222e", "#ffebe9", "#f85149", "#341a1c"),
}
# The page and its edge, the ink, and the ink of what matters less.
PAGE = {"light": ("#ffffff", "#d1d9e0", "#1f2328", "#59636e")}
PAGE["dark"] = ("#0d1117", "#3d444d", "#e6edf3", "#9198a1")


def colours(mode, kinds):
    """The rules of one mode."""
    page, edge, ink, muted = PAGE[mode]
    rules = [
        f".page{{fill:{page};stroke:{edge}}}text{{fill:{ink}}}.small{{fill:{muted}}}"
        f".number{{fill:{page}}}"
    ]
    for kind in sorted(kinds):
        line, surface = KINDS[kind][:2] if mode == "light" else KINDS[kind][2:]
        rules.append(
            f".{kind}{{stroke:{line};fill:{surface}}}.{kind}-head{{fill:{line}}}"
            f".{kind}-ink{{fill:{line}}}"
        )
    return "".join(rules)


STYLE = (
    f"text{{font:14px {FONT}}}.small{{font-size:13px}}.title{{font-size:15px;font-weight:600}}"
    f".bold{{font-weight:600}}.code{{font:13px {CODE_FONT}}}"
    ".number{font-size:13px;font-weight:700}"
    ".middle{text-anchor:middle}.end{text-anchor:end}.arrow{fill:none;stroke-width:1.8}"
    ".box,.frame{stroke-width:1.4}.frame{fill:none}.dashed{stroke-dasharray:5 4}"
)


def pieces(words):
    """The words, cut at backticks: every second piece is code."""
    return list(enumerate(words.split("`")))


def width_of(words, kind):
    """The room that a line of text takes at the most, in pixels."""
    total = 0
    for place, piece in pieces(words):
        if place % 2:
            total += len(piece) * CODE * SIZES["code"]
        else:
            size = SIZES[kind.removeprefix("bold")] * (BOLD if kind in ("title", "bold") else 1)
            total += sum(WIDTH.get(character, 1000) for character in piece) * size
    return total / 1000


def wrapped(parts, separator, width, kind):
    """Lines of parts, each as long as fits."""
    lines = []
    for part in parts:
        longer = separator.join([lines[-1], part]) if lines else ""
        if lines and width_of(longer, kind) <= width:
            lines[-1] = longer
        else:
            lines.append(part)
    return lines


class Box:
    """A rectangle, and the middles of its sides, where arrows begin and end."""

    def __init__(self, x, y, width, height):
        self.x, self.y, self.width, self.height = x, y, width, height
        self.left, self.right = (x, y + height / 2), (x + width, y + height / 2)
        self.top, self.bottom = (x + width / 2, y), (x + width / 2, y + height)

    def overlaps(self, other):
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )


class Picture:
    """One picture. `what` is its title; `told` describes it to a reader who cannot see it."""

    def __init__(self, name, width, height, what, told):
        self.name, self.width, self.height, self.what = name, width, height, what
        self.told = " ".join(told.split())
        self.parts, self.kinds = [], set()
        # What is checked at the end.
        self.texts, self.boxes, self.lines = [], [], []

    def box(self, x, y, width, height, *lines, kind="plain", dashed=False):
        """A box with its lines of text in the middle: bold, or small after a `-`."""
        self.kinds.add(kind)
        box = Box(x, y, width, height)
        style = f"box {kind}" + (" dashed" if dashed else "")
        self.parts.append(
            f'<rect class="{style}" x="{number(x)}" y="{y}" width="{number(width)}" '
            f'height="{height}" rx="6"/>'
        )
        self.boxes.append(box)
        first = y + height / 2 - (len(lines) - 1) * LINE / 2 + 5
        for place, line in enumerate(lines):
            kind = "small" if line.startswith("- ") else "bold"
            line = line.removeprefix("- ")
            words = self.text(x + width / 2, first + place * LINE, line, kind, "middle")
            if words.width > width - 8:
                raise SystemExit(f"{self.name}: {line!r} does not fit into its box")
        return box

    def frame(self, x, y, width, height, kind="plain", dashed=False):
        """An empty frame, which arrows may cross."""
        self.kinds.add(kind)
        style = f"frame {kind}" + (" dashed" if dashed else "")
        self.parts.append(
            f'<rect class="{style}" style="fill:none" x="{x}" y="{y}" width="{width}" '
            f'height="{height}" rx="10"/>'
        )

    def text(self, x, y, words, kind="", anchor="start", ink=None):
        """A line of text; `ink` is the kind whose colour it has, backticks are around code."""
        size = SIZES[kind.removeprefix("bold")]
        width = width_of(words, kind)
        left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
        room = Box(left, y - 0.8 * size, width, size)
        self.texts.append((words, room))
        classes = [kind, anchor.removeprefix("start"), f"{ink}-ink" if ink else ""]
        classes = " ".join(filter(None, classes))
        if ink:
            self.kinds.add(ink)
        inner = "".join(
            f'<tspan class="code">{escape(piece)}</tspan>' if place % 2 else escape(piece)
            for place, piece in pieces(words)
        )
        attribute = f' class="{classes}"' if classes else ""
        self.parts.append(f'<text x="{number(x)}" y="{number(y)}"{attribute}>{inner}</text>')
        return room

    def arrow(self, *points, kind="plain", dashed=False, head=True):
        """A line through the points, with round corners and a head at its end."""
        self.kinds.add(kind)
        self.lines += [(start, end) for start, end in zip(points, points[1:])]
        (x, y), (to_x, to_y) = points[-2:]
        length = math.hypot(to_x - x, to_y - y)
        along = ((to_x - x) / length, (to_y - y) / length)
        # The line ends within the head.
        end = (to_x - 6 * along[0], to_y - 6 * along[1]) if head else (to_x, to_y)
        path = f"M{number(points[0][0])} {number(points[0][1])}"
        for before, corner, after in zip(points, points[1:], points[2:]):
            enters, leaves = towards(corner, before), towards(corner, after)
            path += f"L{pair(enters)}Q{pair(corner)} {pair(leaves)}"
        path += f"L{pair(end)}"
        style = f"arrow {kind}" + (" dashed" if dashed else "")
        self.parts.append(f'<path class="{style}" style="fill:none" d="{path}"/>')
        if head:
            back = (to_x - 9 * along[0], to_y - 9 * along[1])
            across = (-4.5 * along[1], 4.5 * along[0])
            sides = [(back[0] + side * across[0], back[1] + side * across[1]) for side in (1, -1)]
            corners = "L".join(pair(point) for point in (points[-1], *sides))
            self.parts.append(f'<path class="{kind}-head" d="M{corners}z"/>')

    def curve(self, points, kind):
        """A line of a chart, which may cross others."""
        self.kinds.add(kind)
        path = "L".join(pair(point) for point in points)
        self.parts.append(
            f'<path class="{kind}" style="fill:none" stroke-width="1.6" d="M{path}"/>'
        )

    def area(self, points, kind):
        """A filled area, such as that below a curve."""
        self.kinds.add(kind)
        path = "L".join(pair(point) for point in points)
        self.parts.append(f'<path class="{kind}-head" fill-opacity=".65" d="M{path}z"/>')

    def mark(self, x, y, words, kind):
        """A disc with a number in it."""
        self.kinds.add(kind)
        self.parts.append(f'<circle class="{kind}-head" cx="{x}" cy="{y}" r="11"/>')
        # The disc hides the arrows behind its number.
        middle = f'class="number middle" x="{x}" y="{number(y + 4.5)}"'
        self.parts.append(f"<text {middle}>{escape(words)}</text>")

    def svg(self):
        """The picture, checked."""
        self.check()
        light, dark = (colours(mode, self.kinds) for mode in ("light", "dark"))
        width, height = self.width, self.height
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" role="img" aria-labelledby="title told">',
            f'<title id="title">{escape(self.what)}</title>',
            f'<desc id="told">{escape(self.told)}</desc>',
            f"<style>{STYLE}{light}@media (prefers-color-scheme:dark){{{dark}}}</style>",
            f'<rect class="page" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>',
            *self.parts,
            "</svg>",
            "",
        ])

    def check(self):
        """Stops if a text leaves the page, or if a text, a box or an arrow is in its way."""
        for place, (words, room) in enumerate(self.texts):
            end, bottom = room.x + room.width, room.y + room.height
            if room.x < 8 or end > self.width - 8 or room.y < 6 or bottom > self.height - 6:
                raise SystemExit(f"{self.name}: {words!r} leaves the page: {vars(room)}")
            for other, its in self.texts[:place]:
                if room.overlaps(its):
                    raise SystemExit(f"{self.name}: {words!r} overlaps {other!r}")
            for start, end in self.lines:
                if room.overlaps(around(start, end)) and crosses(room, start, end):
                    raise SystemExit(f"{self.name}: an arrow crosses {words!r}: {start} to {end}")
        for box in self.boxes:
            inner = Box(box.x + 1, box.y + 1, box.width - 2, box.height - 2)
            for words, room in self.texts:
                middle = Box(room.x + room.width / 2, room.y + room.height / 2, 0, 0)
                if room.overlaps(inner) and not middle.overlaps(inner):
                    raise SystemExit(f"{self.name}: {words!r} crosses the edge of a box")
            for start, end in self.lines:
                if crosses(inner, start, end):
                    raise SystemExit(f"{self.name}: an arrow crosses a box: {start} to {end}")


def number(value):
    """A number without needless digits."""
    return f"{value:.1f}".removesuffix(".0")


def pair(point):
    return f"{number(point[0])} {number(point[1])}"


def towards(corner, point, most=8):
    """The point at most so far from the corner towards another point."""
    length = math.hypot(point[0] - corner[0], point[1] - corner[1])
    part = min(most, length / 2) / length
    return tuple(here + (there - here) * part for here, there in zip(corner, point))


def around(start, end):
    """The box of a line."""
    x, y = min(start[0], end[0]), min(start[1], end[1])
    return Box(x - 1, y - 1, abs(start[0] - end[0]) + 2, abs(start[1] - end[1]) + 2)


def crosses(box, start, end):
    """Whether a line has a point within a box."""
    steps = max(2, int(math.hypot(end[0] - start[0], end[1] - start[1])))
    for step in range(steps + 1):
        x = start[0] + (end[0] - start[0]) * step / steps
        y = start[1] + (end[1] - start[1]) * step / steps
        if box.x < x < box.x + box.width and box.y < y < box.y + box.height:
            return True
    return False
