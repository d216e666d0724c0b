#!/usr/bin/env python3
"""Draws the layout of infra/dashboard.json, the dashboard of the template: docs/dashboard.svg.

    infra/dashboard_svg.py            write the picture
    infra/dashboard_svg.py --check    fail when it is not that of the dashboard
"""

import json
import sys
import textwrap
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "infra" / "dashboard.json"
PICTURE = ROOT / "docs" / "dashboard.svg"

# Pixels of one unit of CloudWatch's grid, which has 24 columns, of a line of text, and roughly of one character of it.
COLUMN, ROW, LINE, CHARACTER = 50, 30, 15, 6.6
GAP, MARGIN = 4, 10

STYLE = """
  text { font: 11px sans-serif; fill: #414d5c }
  .title { font-weight: bold; font-size: 12px; fill: #0f1b2a }
  .row { font-weight: bold; font-size: 16px; fill: #0f1b2a }
  .page { fill: #f2f3f3 }
  .widget { fill: #fff; stroke: #b6bec9 }
"""


def shown(widget):
    """What a widget shows, one line for each metric: its name, and its statistics or classes."""
    properties = widget["properties"]
    if widget["type"] == "alarm":
        return [" · ".join(arn.removeprefix("${").removesuffix(".Arn}") for arn in properties["alarms"])]
    lines = {}
    for metric in properties["metrics"]:
        *path, options = metric
        if options.get("visible") is False:
            continue
        if not path:
            lines[options["label"]] = [options["expression"]]
            continue
        namespace, name, *dimensions = path
        dimensions = dict(zip(dimensions[::2], dimensions[1::2]))
        queue = " of the dead-letter queue" if "DeadLetterQueue" in dimensions.get("QueueName", "") else ""
        by_class = f" ({options['stat']}) by class" if "Class" in dimensions else ""
        lines.setdefault(f"{namespace.removeprefix('AWS/')} {name}{queue}{by_class}", []).append(dimensions.get("Class", options["stat"]))
    return [f"{name}: {', '.join(parts)}" for name, parts in lines.items()]


def text(x, y, words, kind=""):
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{kind}>{escape(words)}</text>'


def box(widget):
    """One widget: a frame, its title and what it shows; a heading is a line of text."""
    x, y = widget["x"] * COLUMN, widget["y"] * ROW
    properties = widget["properties"]
    if widget["type"] == "text":
        return [text(x + MARGIN, y + 21, properties["markdown"].lstrip("# "), "row")]
    width, height = widget["width"] * COLUMN - GAP, widget["height"] * ROW - GAP
    parts = [f'<rect class="widget" x="{x + GAP // 2}" y="{y + GAP // 2}" width="{width}" height="{height}" rx="4"/>']
    fitting = int((width - 2 * MARGIN) / CHARACTER)
    parts.append(text(x + MARGIN, y + 20, properties["title"], "title"))
    lines = [part for line in shown(widget) for part in textwrap.wrap(line, fitting, break_on_hyphens=False)]
    if 26 + len(lines) * LINE > height:
        raise SystemExit(f"{properties['title']}: {len(lines)} lines do not fit into the widget")
    parts += [text(x + MARGIN, y + 26 + place * LINE, line) for place, line in enumerate(lines, 1)]
    return parts


def picture(dashboard):
    widgets = dashboard["widgets"]
    width = max(widget["x"] + widget["width"] for widget in widgets) * COLUMN
    height = max(widget["y"] + widget["height"] for widget in widgets) * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        "<title>The CloudWatch dashboard: its rows, widgets and metrics</title>",
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        *(part for widget in widgets for part in box(widget)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def main(arguments):
    drawn = picture(json.loads(DASHBOARD.read_text()))
    match arguments:
        case []:
            PICTURE.write_text(drawn)
        case ["--check"]:
            if not PICTURE.exists() or PICTURE.read_text() != drawn:
                sys.exit(f"{PICTURE.relative_to(ROOT)} is not the picture of {DASHBOARD.relative_to(ROOT)}: run infra/dashboard_svg.py")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
