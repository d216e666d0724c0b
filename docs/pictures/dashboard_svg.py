"""The dashboard of the template, infra/dashboard.json: its widgets, with sample data of an hour in
which the service fails for fifteen minutes."""

import json
import re
from pathlib import Path

from pen import LINE, Picture, width_of, wrapped

DASHBOARD = Path(__file__).resolve().parents[2] / "infra" / "dashboard.json"
# The values of each line, by widget and label, one for every five minutes.
SAMPLE = Path(__file__).with_name("dashboard_sample.json")
# CloudWatch's grid has 24 columns.
WIDTH, COLUMN, GAP, MARGIN = 850, 34.5, 3, 10
# The height of a chart, and the colours of its lines in their order.
CHART, INKS = 60, ["queue", "retry", "bad", "good", "requeue", "plain"]


def shown(widget):
    """What a widget shows: the labels of its lines, or the names of its alarms."""
    properties = widget["properties"]
    if widget["type"] == "alarm":
        names = [arn.removeprefix("${").removesuffix("Alarm.Arn}") for arn in properties["alarms"]]
        return [" ".join(re.findall("[A-Z][a-z]+", name)).capitalize() for name in names]
    return [line["label"] for line in lines_of(widget)]


def lines_of(widget):
    options = [metric[-1] for metric in widget["properties"]["metrics"]]
    return [option for option in options if option.get("visible") is not False]


def compact(value):
    """A number in few characters."""
    return f"{value / 1000:.1f}k".replace(".0k", "k") if value >= 1000 else f"{value:g}"


def chart(drawn, widget, sample, x, y, width):
    """The lines of a widget, the lowest value of each axis at the bottom. The largest values of the
    axes stand above them."""
    for side, at, anchor in [("left", x, "start"), ("right", x + width, "end")]:
        chosen = [
            (ink, sample.get(line["label"], [0, 0]))
            for ink, line in zip(INKS, lines_of(widget))
            if line.get("yAxis", "left") == side
        ]
        most = max((value for _, values in chosen for value in values), default=0)
        if chosen:
            drawn.text(at, y + 12, compact(most), "small", anchor)
        for ink, values in reversed(chosen):
            step = width / (len(values) - 1)
            drawn.curve(
                [
                    (x + place * step, y + CHART - value / (most or 1) * (CHART - 18))
                    for place, value in enumerate(values)
                ],
                ink,
            )


def legend(drawn, widget, x, y, rows):
    """The labels, in the colours of their lines."""
    inks = iter(INKS)
    for row in rows:
        at = x
        for label in row.split(" · "):
            ink = None if widget["type"] == "alarm" else next(inks)
            drawn.text(at, y, label, "small", ink=ink)
            at += width_of(label + " · ", "small")
        y += LINE


def bands(widgets):
    """The widgets that stand side by side, from the top to the bottom."""
    tops = sorted({widget["y"] for widget in widgets})
    return [[widget for widget in widgets if widget["y"] == top] for top in tops]


def picture(dashboard=None):
    widgets = (dashboard or json.loads(DASHBOARD.read_text()))["widgets"]
    sample = json.loads(SAMPLE.read_text())
    parts, y = [], 8
    for band in bands(widgets):
        if band[0]["type"] == "text":
            parts.append(("heading", y, band[0]["properties"]["markdown"].lstrip("# ")))
            y += 32
            continue
        texts = []
        for widget in band:
            room = widget["width"] * COLUMN - 2 * GAP - 2 * MARGIN
            title = wrapped(widget["properties"]["title"].split(" "), " ", room, "bold")
            texts.append((widget, title, wrapped(shown(widget), " · ", room, "small")))
        # What a widget shows follows on its title: rows are as high as that needs.
        rows = max(len(title) + len(lines) for _, title, lines in texts)
        has_chart = any(widget["type"] == "metric" for widget in band)
        height = rows * LINE + 16 + (CHART + 8 if has_chart else 0)
        parts += [("widget", y, height, *text) for text in texts]
        y += height + 2 * GAP
    drawn = Picture(
        "dashboard", WIDTH, y + 8,
        "The CloudWatch dashboard of the template",
        "Widgets in rows, with the lines of an hour in which the service fails for a quarter: "
        + ", ".join(part[2] for part in parts if part[0] == "heading")
        + ".",
    )
    for part in parts:
        match part:
            case ("heading", y, words):
                drawn.text(14 + GAP, y + 22, words, "title")
            case ("widget", y, height, widget, title, lines):
                x = 11 + widget["x"] * COLUMN + GAP
                drawn.box(x, y, widget["width"] * COLUMN - 2 * GAP, height)
                for place, words in enumerate(title, 1):
                    drawn.text(x + MARGIN, y + 4 + place * LINE, words, "bold")
                below = y + 4 + len(title) * LINE
                if widget["type"] == "metric":
                    inner = widget["width"] * COLUMN - 2 * GAP - 2 * MARGIN
                    title = widget["properties"]["title"]
                    chart(drawn, widget, sample.get(title, {}), x + MARGIN, below + 6, inner)
                    below += CHART + 8
                legend(drawn, widget, x + MARGIN, below + LINE, lines)
    return drawn
