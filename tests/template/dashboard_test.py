"""The dashboard: its metrics, and that template and picture match infra/dashboard.json.

With $REQUEUE_TEST_WRITE_DASHBOARD, the tests write the file that the template includes.
"""

import copy
import itertools
import json
import os
import re
import subprocess
import sys
import unittest

from metrics import CLASSES, METRICS
from stack import ROOT, cloudformation, template

sys.path.insert(0, str(ROOT / "docs" / "pictures"))
import dashboard_svg

# Metrics of AWS that are no counts.
AWS_UNITS = {"Duration": "Milliseconds", "ApproximateAgeOfOldestMessage": "Seconds"}
AXES = {"Milliseconds": {"ms"}, "Seconds": {"seconds"}}
DIMENSIONS = {
    "AWS/SQS": [{"QueueName": "${Queue.QueueName}"}, {"QueueName": "${DeadLetterQueue.QueueName}"}],
    "AWS/Lambda": [{"FunctionName": "${Function}"}],
    "Requeue": [{"Service": "${Function}", "Queue": "${Queue.QueueName}"}],
}

# The start of the file that the template includes. The body has no spaces between its words, since
# each counts towards the limit of a processed template.
INCLUDED_HEAD = """\
# The body of the dashboard in template.yaml. Requeue's repository makes this file from infra/dashboard.json.
Fn::Sub: >-
"""


class Metric:
    """One line of a widget."""

    def __init__(self, entry):
        *path, self.options = entry
        self.expression = self.options.get("expression")
        if path:
            self.namespace, self.name, *dimensions = path
            self.dimensions = dict(zip(dimensions[::2], dimensions[1::2]))
            self.stat = self.options["stat"]


def expanded(metrics):
    """The metrics of a widget without CloudWatch's shorthand.

    "..." stands for the beginning of the metric before, so ["...", "quota"] differs from it in the
    last word only. "." stands for one word of the metric before, in the same place.
    """
    before = []
    for *path, options in metrics:
        if path[:1] == ["..."]:
            path = before[: len(before) - len(path) + 1] + path[1:]
        path = [before[place] if word == "." else word for place, word in enumerate(path)]
        yield [*path, options]
        before = path


def bounds(statistic):
    """The bounds of a range such as TC(0.5:1.5); 0 where there is no lower one."""
    lower, upper = re.fullmatch(r"[A-Z]+\((.*):(.+)\)", statistic).groups()
    return float(lower or 0), float(upper)


class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.body = json.loads((ROOT / "infra" / "dashboard.json").read_text())
        cls.widgets = cls.body["widgets"]
        cls.graphs = {
            widget["properties"]["title"]: [Metric(entry) for entry in expanded(widget["properties"]["metrics"])]
            for widget in cls.widgets
            if widget["type"] == "metric"
        }
        cls.metrics = [metric for metrics in cls.graphs.values() for metric in metrics if not metric.expression]
        cls.ours = [metric for metric in cls.metrics if metric.namespace == "Requeue"]

    def test_the_template_includes_the_file(self):
        widgets = ",\n  ".join(json.dumps(widget, separators=(",", ":")) for widget in self.widgets)
        text = f'{INCLUDED_HEAD}  {{"widgets":[\n  {widgets}\n  ]}}\n'
        path = ROOT / "infra" / "dashboard.yaml"
        if "REQUEUE_TEST_WRITE_DASHBOARD" in os.environ:
            path.write_text(text)
        self.assertEqual(path.read_text(), text, "write it anew: REQUEUE_TEST_WRITE_DASHBOARD=1 tests/run template")
        self.assertEqual(template()["Resources"]["Dashboard"]["Properties"]["DashboardBody"], {
            "Fn::Transform": {"Name": "AWS::Include", "Parameters": {"Location": "infra/dashboard.yaml"}}})
        body = cloudformation()["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
        self.assertEqual(json.loads(body), self.body)

    # CloudWatch bills no account for its first three dashboards if each has at most 50 metrics.
    def test_it_has_at_most_50_metrics(self):
        series = {(metric.namespace, metric.name, *metric.dimensions.items()) for metric in self.metrics}
        self.assertLessEqual(len(series), 50)
        self.assertIn(f"This one has {len(series)} |", (ROOT / "docs" / "operate" / "cost.md").read_text())

    def test_it_has_five_rows(self):
        headings = [widget for widget in self.widgets if widget["type"] == "text"]
        self.assertEqual([heading["properties"]["markdown"] for heading in headings], ["## Queue", "## Processing", "## Retry", "## Rate limit", "## Alarms"])
        self.assertEqual([heading["y"] for heading in headings], sorted({heading["y"] for heading in headings}))
        self.assertEqual({(heading["x"], heading["width"]) for heading in headings}, {(0, 24)})

    def test_widgets_cover_the_grid_without_overlapping(self):
        taken = [
            (column, row)
            for widget in self.widgets
            for column in range(widget["x"], widget["x"] + widget["width"])
            for row in range(widget["y"], widget["y"] + widget["height"])
        ]
        bottom = max(row for _, row in taken) + 1
        self.assertEqual(sorted(taken), sorted(itertools.product(range(24), range(bottom))))

    def test_every_graph_is_of_this_region_and_named_once(self):
        graphs = [widget["properties"] for widget in self.widgets if widget["type"] == "metric"]
        self.assertEqual({graph["region"] for graph in graphs}, {"${AWS::Region}"})
        self.assertEqual(len(self.graphs), len(graphs))

    def test_every_metric_has_the_dimensions_of_the_stack(self):
        for metric in self.metrics:
            dimensions = dict(metric.dimensions)
            if metric.namespace == "Requeue" and "Class" in dimensions:
                self.assertIn(dimensions.pop("Class"), CLASSES)
                self.assertTrue(METRICS[metric.name][1], f"{metric.name} is not emitted by class")
            self.assertIn(dimensions, DIMENSIONS[metric.namespace], metric.name)

    def test_it_shows_every_metric_that_is_emitted_and_no_other(self):
        self.assertEqual({metric.name for metric in self.ours}, set(METRICS))

    def test_axes_say_the_unit(self):
        for widget in self.widgets:
            if widget["type"] != "metric":
                continue
            properties = widget["properties"]
            for metric in self.graphs[properties["title"]]:
                if metric.expression or metric.options.get("visible") is False:
                    continue
                axis = properties["yAxis"][metric.options.get("yAxis", "left")]
                unit = METRICS[metric.name][0] if metric.namespace == "Requeue" else AWS_UNITS.get(metric.name, "Count")
                other = set().union(*(labels for name, labels in AXES.items() if name != unit))
                self.assertNotIn(axis["label"], other, metric.name)
                if unit in AXES:
                    self.assertIn(axis["label"], AXES[unit], metric.name)

    def test_counts_are_added_up(self):
        for metric in self.ours:
            if METRICS[metric.name][0] == "Count" and metric.name not in ("RetryCount", "FailedAttempt"):
                self.assertEqual(metric.stat, "Sum", metric.name)
            else:
                self.assertNotEqual(metric.stat, "Sum", metric.name)

    def test_expressions_name_what_is_there(self):
        for title, metrics in self.graphs.items():
            ids = {metric.options["id"] for metric in metrics if "id" in metric.options}
            for metric in metrics:
                names = set(re.findall(r"\b[a-z]\w*", metric.expression or ""))
                self.assertEqual(names - ids, set(), title)

    def test_the_error_rate_is_that_of_the_alarm(self):
        queries = cloudformation()["Resources"]["ErrorRateAlarm"]["Properties"]["Metrics"]
        alarm = {query["Id"]: query["Expression"] for query in queries if "Expression" in query}
        shown = {metric.options["id"]: metric.expression for metric in self.graphs["Failures"] if metric.expression}
        self.assertEqual(shown["handled"], alarm["handled"])
        self.assertIn(f", {shown['rate']}, ", alarm["rate"])

    def test_retry_counts_are_counted_in_ranges_without_gaps(self):
        ranges = [bounds(metric.stat) for metric in self.graphs["Retries used by completed messages"]]
        self.assertEqual(ranges[0][0], 0)
        for (_, upper), (lower, _) in itertools.pairwise(ranges):
            self.assertEqual(upper, lower)
        # No policy allows so many retries.
        self.assertGreaterEqual(ranges[-1][1], 1_000_000)

    def test_success_by_attempt_counts_all_who_needed_fewer_retries(self):
        metrics = self.graphs["Messages completed within so many attempts"]
        for metric in metrics:
            attempts = int(metric.options["label"].split()[0])
            self.assertEqual((metric.name, metric.stat), ("RetryCount", f"PR(:{attempts - 1}.5)"))
        self.assertEqual(metrics[0].stat, "PR(:0.5)")

    def test_retries_are_told_apart_by_each_class_that_is_retried(self):
        retried = CLASSES - {"non-retryable"}
        for title, name, stat in [("Retries by class", "Requeued", "Sum"), ("Mean delay of a retry", "RetryDelay", "Average")]:
            metrics = self.graphs[title]
            self.assertEqual({metric.dimensions["Class"] for metric in metrics if "Class" in metric.dimensions}, retried)
            self.assertEqual({(metric.name, metric.stat) for metric in metrics}, {(name, stat)})

    def test_failures_are_counted_by_attempt_without_gaps(self):
        metrics = self.graphs["Failures by attempt"]
        self.assertEqual({metric.name for metric in metrics}, {"FailedAttempt"})
        ranges = [bounds(metric.stat) for metric in metrics]
        # The first attempt is 1.
        self.assertEqual(ranges[0], (0.5, 1.5))
        for (_, upper), (lower, _) in itertools.pairwise(ranges):
            self.assertEqual(upper, lower)
        self.assertGreaterEqual(ranges[-1][1], 1_000_000)

    def test_time_to_success_is_shown_for_all_at_the_first_attempt_and_after_a_retry(self):
        shown = {(metric.name, metric.stat) for metric in self.graphs["Time to success"]}
        names = ["TimeToSuccess", "TimeToSuccessFirstAttempt", "TimeToSuccessAfterRetry"]
        self.assertEqual(shown, set(itertools.product(names, ["p50", "p99"])))

    def test_all_alarms_are_on_it(self):
        (widget,) = [widget for widget in self.widgets if widget["type"] == "alarm"]
        resources = cloudformation()["Resources"]
        alarms = [f"${{{name}.Arn}}" for name, resource in resources.items() if resource["Type"] == "AWS::CloudWatch::Alarm"]
        self.assertEqual(sorted(widget["properties"]["alarms"]), sorted(alarms))

    def test_its_picture_is_up_to_date(self):
        command = [sys.executable, ROOT / "docs" / "pictures" / "draw", "--check", "dashboard"]
        checked = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stderr), (0, ""))

    def test_its_picture_shows_every_title_and_line(self):
        before = dashboard_svg.picture(self.body).svg()
        for place, widget in enumerate(self.widgets):
            changed = copy.deepcopy(self.body)
            properties = changed["widgets"][place]["properties"]
            name = "markdown" if widget["type"] == "text" else "title"
            properties[name] = "## Other"
            self.assertNotEqual(dashboard_svg.picture(changed).svg(), before)
            if widget["type"] == "metric":
                changed = copy.deepcopy(self.body)
                changed["widgets"][place]["properties"]["metrics"].pop()
                self.assertNotEqual(dashboard_svg.picture(changed).svg(), before, widget["properties"]["title"])
