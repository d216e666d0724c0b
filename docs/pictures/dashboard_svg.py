"""The layout of infra/dashboard.json, the dashboard of the template: widgets and their lines."""

import json
import re
from pathlib import Path

from pen import LINE, Picture, wrapped

DASHBOARD = Path(__file__).resolve().parents[2] / "infra" / "dashboard.json"
# CloudWatch's grid has 24 columns.
WIDTH, COLUMN, GAP, MARGIN = 850, 34.5, 3, 10


def shown(widget):
    """What a widget shows: the labels of its lines, or the names of its alarms."""
    properties = widget["properties"]
    if widget["type"] == "alarm":
        names = [arn.removeprefix("${").removesuffix("Alarm.Arn}") for arn in properties["alarms"]]
        return [" ".join(re.findall("[A-Z][a-z]+", name)).capitalize() for name in names]
    options = [metric[-1] for metric in properties["metrics"]]
    return [option["label"] for option in options if option.get("visible") is not False]


def bands(widgets):
    """The widgets that stand side by side, from the top to the bottom."""
    tops = sorted({widget["y"] for widget in widgets})
    return [[widget for widget in widgets if widget["y"] == top] for top in tops]


def picture(dashboard=None):
    widgets = (dashboard or json.loads(DASHBOARD.read_text()))["widgets"]
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
        height = max(len(title) + len(lines) for _, title, lines in texts) * LINE + 16
        parts += [("widget", y, height, *text) for text in texts]
        y += height + 2 * GAP
    drawn = Picture(
        "dashboard", WIDTH, y + 8,
        "The CloudWatch dashboard of the template",
        "Widgets in rows with their titles, and the names of the lines in each: "
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
                for place, words in enumerate(title + lines, 1):
                    kind = "bold" if place <= len(title) else "small"
                    drawn.text(x + MARGIN, y + 4 + place * LINE, words, kind)
    return drawn
