"""Calls in each second by 20 execution environments, without and with a shared table. The calls are
those of `requeue simulate rate --messages 3000 --environments 20`; this writes them again:

    REQUEUE_TEST_WRITE_PICTURES=1 cargo test -p requeue-cli --test cli picture_of_a_rate_limit
"""

import json
from pathlib import Path

from pen import Picture

LIMIT = 50
SECONDS = 64
LEFT, RIGHT = 76, 828
WIDTH = (RIGHT - LEFT) / SECONDS


def picture():
    calls = json.loads(Path(__file__).with_name("shared_rate_limit.json").read_text())
    alone, shared = calls["withoutTable"], calls["withTable"]
    drawn = Picture(
        "shared-rate-limit", 850, 452,
        "Calls of 20 execution environments in each second",
        f"""3,000 messages wait, and the service takes {LIMIT} calls in a second. Without a table, each
        execution environment keeps the limit for itself: together they make up to {max(alone)}
        calls in a second, and are done after {len(alone)} s. With a table, they make {max(shared)}
        calls in each second, until all are done after {len(shared)} s.""",
    )
    drawn.text(20, 30, "Each environment keeps the limit alone", "title", ink="bad")
    drawn.text(RIGHT, 30, f"3,000 messages, limit {LIMIT} calls in a second", "small", "end")
    panel(drawn, 186, alone, 800, "bad")
    drawn.text(200, 104, f"up to {max(alone)} calls in a second,", "small")
    drawn.text(200, 122, f"done after {len(alone)} s", "small")
    drawn.text(20, 240, "All environments share the limit by a table", "title", ink="good")
    panel(drawn, 396, shared, 60, "good")
    drawn.text((LEFT + RIGHT) / 2, 436, "seconds", "small", "middle")
    return drawn


def panel(drawn, bottom, calls, most, kind, height=126):
    """The calls of one run, with its axes and the limit."""
    def high(count):
        return bottom - height * count / most

    outline = [(LEFT, bottom)]
    for second, count in enumerate(calls):
        outline += [(LEFT + WIDTH * at, high(count)) for at in (second, second + 1)]
    drawn.area([*outline, (outline[-1][0], bottom)], kind)
    drawn.arrow((LEFT, high(most)), (LEFT, bottom), head=False)
    drawn.arrow((LEFT, bottom), (RIGHT, bottom), head=False)
    drawn.arrow((LEFT, high(LIMIT)), (RIGHT, high(LIMIT)), kind="queue", dashed=True, head=False)
    drawn.text(LEFT - 8, high(LIMIT) - (2 if most > 100 else -5), str(LIMIT), "small", "end")
    if most > 100:
        drawn.text(LEFT - 8, high(max(calls)) + 5, str(max(calls)), "small", "end")
    drawn.text(LEFT - 8, bottom + 9, "0", "small", "end")
    for second in range(0, SECONDS, 10):
        drawn.text(LEFT + WIDTH * second, bottom + 20, str(second), "small", "middle")
