"""When the template's alarms go off, what they say, and where they send it."""

import re
import unittest

from metrics import METRICS
from stack import ROOT, TOPIC, cloudformation, deployed

ANCHORS = {
    "DeadLettersAlarm": "dead-letters",
    "QueueDepthAlarm": "queue-depth",
    "MessageAgeAlarm": "message-age",
    "ErrorRateAlarm": "error-rate",
    "FunctionDurationAlarm": "function-duration",
    "FunctionErrorsAlarm": "function-errors",
    "ThrottlesAlarm": "throttles",
    "SendUnconfirmedAlarm": "send-unconfirmed",
}

# Dimensions by namespace: each metric of the stack has exactly one of these sets.
QUEUE = {"QueueName": {"Fn::GetAtt": ["Queue", "QueueName"]}}
DEAD_LETTERS = {"QueueName": {"Fn::GetAtt": ["DeadLetterQueue", "QueueName"]}}
SUBJECTS = {
    "AWS/SQS": [(QUEUE, "queue"), (DEAD_LETTERS, "dead letters")],
    "AWS/Lambda": [({"FunctionName": {"Ref": "Function"}}, "function")],
    "Requeue": [({"Service": {"Ref": "Function"}, "Queue": {"Fn::GetAtt": ["Queue", "QueueName"]}}, "ours")],
}

VISIBLE = "ApproximateNumberOfMessagesVisible"
# An alarm, the measurements of a period, and whether it goes off: at the threshold, beyond it, and by
# another metric.
CASES = [
    ("DeadLettersAlarm", {f"Maximum {VISIBLE} of dead letters": 0}, False),
    ("DeadLettersAlarm", {f"Maximum {VISIBLE} of dead letters": 1}, True),
    ("QueueDepthAlarm", {f"Minimum {VISIBLE} of queue": 5000}, False),
    ("QueueDepthAlarm", {f"Minimum {VISIBLE} of queue": 5001}, True),
    ("QueueDepthAlarm", {"Minimum ApproximateNumberOfMessagesDelayed of queue": 9000}, False),
    ("MessageAgeAlarm", {"Maximum MessageAge of ours": 900, "Maximum ApproximateAgeOfOldestMessage of queue": 900}, False),
    ("MessageAgeAlarm", {"Maximum MessageAge of ours": 901, "Maximum ApproximateAgeOfOldestMessage of queue": 5}, True),
    ("MessageAgeAlarm", {"Maximum MessageAge of ours": 901}, True),
    # The function receives nothing, for example because the mapping is disabled.
    ("MessageAgeAlarm", {"Maximum ApproximateAgeOfOldestMessage of queue": 901}, True),
    ("ErrorRateAlarm", {"Sum Failed of ours": 1, "Sum Completed of ours": 1}, False),
    ("ErrorRateAlarm", {"Sum Failed of ours": 9}, False),
    ("ErrorRateAlarm", {"Sum Failed of ours": 10}, True),
    ("ErrorRateAlarm", {"Sum Completed of ours": 1000}, False),
    ("ErrorRateAlarm", {"Sum Failed of ours": 3, "Sum Completed of ours": 7}, False),
    ("ErrorRateAlarm", {"Sum Failed of ours": 4, "Sum Completed of ours": 6}, True),
    ("ErrorRateAlarm", {"Sum Failed of ours": 300, "Sum Completed of ours": 700}, False),
    ("ErrorRateAlarm", {"Sum Failed of ours": 301, "Sum Completed of ours": 700}, True),
    ("FunctionDurationAlarm", {"p99 Duration of function": 48_000}, False),
    ("FunctionDurationAlarm", {"p99 Duration of function": 48_001}, True),
    ("FunctionErrorsAlarm", {"Sum Errors of function": 0}, False),
    ("FunctionErrorsAlarm", {"Sum Errors of function": 1}, True),
    ("ThrottlesAlarm", {"Sum Throttles of function": 0}, False),
    ("ThrottlesAlarm", {"Sum Throttles of function": 1}, True),
    ("SendUnconfirmedAlarm", {"Sum SendUnconfirmed of ours": 0}, False),
    ("SendUnconfirmedAlarm", {"Sum SendUnconfirmed of ours": 1}, True),
]


def measurement(metric, statistic):
    dimensions = {dimension["Name"]: dimension["Value"] for dimension in metric["Dimensions"]}
    (subject,) = [name for known, name in SUBJECTS[metric["Namespace"]] if known == dimensions]
    return f"{statistic} {metric['MetricName']} of {subject}"


def queries(alarm):
    """The measurements and expressions of an alarm, by identifier, and the identifier that it compares."""
    if "MetricName" in alarm:
        return {"value": measurement(alarm, alarm.get("Statistic") or alarm["ExtendedStatistic"])}, {}, "value"
    read, expressions = {}, {}
    for query in alarm["Metrics"]:
        if "Expression" in query:
            expressions[query["Id"]] = query["Expression"]
        else:
            read[query["Id"]] = measurement(query["MetricStat"]["Metric"], query["MetricStat"]["Stat"])
    (compared,) = [query["Id"] for query in alarm["Metrics"] if query.get("ReturnData", True)]
    return read, expressions, compared


def computed(expression, values, fills):
    """The value of an expression of metric math in one period, or None when there is none.

    AWS does not document whether FILL also fills a metric without any data; `fills` decides.
    """

    def over(function):
        def applied(values):
            present = [value for value in values if value is not None]
            return function(present) if present else None

        return applied

    functions = {
        "FILL": lambda value, filling: filling if value is None and fills else value,
        "IF": lambda condition, yes, no: yes if condition else no,
        "MAX": over(max),
        "SUM": over(sum),
    }
    try:
        return eval(expression, {"__builtins__": {}}, {**functions, **values})
    except (TypeError, ZeroDivisionError):  # CloudWatch has no data where one operand is missing, or the divisor 0
        return None


class Alarms(unittest.TestCase):
    def alarms(self, **given):
        resources = deployed(cloudformation(), **given)
        return {name: made["Properties"] for name, made in resources.items() if made["Type"] == "AWS::CloudWatch::Alarm"}

    def goes_off(self, alarm, measured, fills):
        read, expressions, compared = queries(alarm)
        values = {name: measured.get(reading) for name, reading in read.items()}
        for name, expression in expressions.items():
            values[name] = computed(expression, values, fills)
        self.assertEqual(alarm["ComparisonOperator"], "GreaterThanThreshold")
        return values[compared] is not None and values[compared] > alarm["Threshold"]

    def test_each_alarm_goes_off_beyond_its_threshold_and_not_at_it(self):
        alarms = self.alarms()
        self.assertEqual({name for name, *_ in CASES}, set(alarms))
        for name, measured, expected in CASES:
            for fills in (True, False):
                self.assertEqual(self.goes_off(alarms[name], measured, fills), expected, f"{name}: {measured}")

    def test_an_idle_stack_is_quiet(self):
        for name, alarm in self.alarms().items():
            self.assertEqual(alarm["TreatMissingData"], "notBreaching", name)
            for fills in (True, False):
                self.assertFalse(self.goes_off(alarm, {}, fills), name)

    def test_thresholds_follow_their_parameters(self):
        self.assertEqual(self.alarms(MaxQueueDepth=7)["QueueDepthAlarm"]["Threshold"], 7)
        self.assertEqual(self.alarms(MaxMessageAgeSeconds=3600)["MessageAgeAlarm"]["Threshold"], 3600)
        for timeout in cloudformation()["Parameters"]["FunctionTimeout"]["AllowedValues"]:
            alarm = self.alarms(FunctionTimeout=timeout)["FunctionDurationAlarm"]
            self.assertEqual(alarm["Threshold"], 0.8 * int(timeout) * 1000)

    def test_an_alarm_looks_back_as_long_as_what_it_watches_takes(self):
        periods = {}
        for name, alarm in self.alarms().items():
            queried = [alarm] if "Period" in alarm else [query["MetricStat"] for query in alarm["Metrics"] if "MetricStat" in query]
            (period,) = {query["Period"] for query in queried}
            periods[name] = period * alarm["EvaluationPeriods"]
            self.assertNotIn("DatapointsToAlarm", alarm)
        # A waiting message is received every 15 minutes. The breaker lets a call through every 30 seconds.
        self.assertGreaterEqual(periods["MessageAgeAlarm"], 900)
        self.assertGreaterEqual(periods["ErrorRateAlarm"], 10 * 30)
        longest = max(map(int, cloudformation()["Parameters"]["FunctionTimeout"]["AllowedValues"]))
        self.assertGreaterEqual(self.alarms()["FunctionDurationAlarm"]["Period"], longest)
        self.assertEqual(periods["DeadLettersAlarm"], 60)
        for name in ("QueueDepthAlarm", "FunctionErrorsAlarm", "ThrottlesAlarm", "SendUnconfirmedAlarm"):
            self.assertEqual(periods[name], 300)

    def test_our_metrics_are_emitted(self):
        read = [reading for alarm in self.alarms().values() for reading in queries(alarm)[0].values()]
        ours = {reading.split()[1] for reading in read if reading.endswith(" of ours")}
        self.assertEqual(ours, {"MessageAge", "Failed", "Completed", "SendUnconfirmed"})
        self.assertLessEqual(ours, set(METRICS))

    def test_the_price_that_is_told_is_that_of_these_alarms(self):
        alarms = self.alarms()
        read = sum(len(queries(alarm)[0]) for alarm in alarms.values())
        self.assertEqual((len(alarms), read), (8, 10))
        self.assertRegex(cloudformation()["Parameters"]["Monitoring"]["Description"], "about 1 USD for the eight alarms")
        cost = (ROOT / "docs" / "operate" / "cost.md").read_text()
        self.assertIn("| eight alarms, $0.10 for each of the ten metrics that they read | $1.00 |", cost)

    def test_each_description_ends_with_its_section_of_the_runbook(self):
        runbook = (ROOT / "docs" / "operate" / "runbook.md").read_text()
        sections = {title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", runbook, re.MULTILINE)}
        for given, address in [({}, "docs/operate/runbook.md"), ({"RunbookUrl": "https://wiki.example.com/requeue"}, "https://wiki.example.com/requeue")]:
            for name, alarm in self.alarms(**given).items():
                self.assertIn(ANCHORS[name], sections)
                end = f" Runbook (your copy, or in Requeue's repository): {address}#{ANCHORS[name]}"
                self.assertTrue(alarm["AlarmDescription"]["Fn::Sub"].endswith(end), alarm["AlarmDescription"])

    def test_the_alarm_on_unconfirmed_sends_says_how_long_the_receives_last(self):
        (hidden,) = re.findall(r"MIN_HIDDEN_IF_UNSENT: Duration = Duration::from_secs\((\d+)\)", (ROOT / "src/settle/hide.rs").read_text())
        receives = cloudformation()["Parameters"]["MaxReceiveCount"]["Default"]
        said = self.alarms()["SendUnconfirmedAlarm"]["AlarmDescription"]["Fn::Sub"]
        self.assertIn(f"by default in about {(receives - 1) * int(hidden) // 60} minutes.", said)

    def test_the_page_has_what_each_alarm_reads_and_for_how_long(self):
        page = (ROOT / "docs" / "operate" / "monitoring.md").read_text()
        rows = re.findall(r"^\| \[.+\]\(runbook\.md#([\w-]+)\) \| (.+) \| (\d+) min \| (.+) \|$", page, re.MULTILINE)
        self.assertEqual([anchor for anchor, *_ in rows], list(ANCHORS.values()))
        for (name, alarm), (_, condition, minutes, metrics) in zip(self.alarms().items(), rows, strict=True):
            queried = [alarm] if "Period" in alarm else [query["MetricStat"] for query in alarm["Metrics"] if "MetricStat" in query]
            self.assertEqual(queried[0]["Period"] * alarm["EvaluationPeriods"], 60 * int(minutes), name)
            read = {reading.split()[1] for reading in queries(alarm)[0].values()}
            self.assertEqual(set(re.findall(r"`(\w+)`", metrics)), read, name)
            if 1 < alarm["Threshold"] < 10_000:
                self.assertIn(f"{alarm['Threshold']:,}", condition, name)

    def test_a_description_names_the_first_step_and_fits_into_an_alarm(self):
        # AWS allows 80 characters for a queue's name, and 64 for a function's. So a stack's name has at
        # most 67, since the name of its dead-letter queue begins with it.
        stack = 80 - len("-dead-letters")
        longest = {
            "Queue.QueueName": stack + len("-messages"),
            "DeadLetterQueue.QueueName": 80,
            "DeadLetterQueue": len("https://sqs.cn-northwest-1.amazonaws.com.cn/123456789012/") + 80,
            "Function": 64,
            "LogGroup": len("/aws/lambda/") + stack,
        }
        address = "x" * cloudformation()["Parameters"]["RunbookUrl"]["MaxLength"]
        given = {"MaxQueueDepth": 10**9, "MaxMessageAgeSeconds": 10**9, "RunbookUrl": address}
        for name, alarm in self.alarms(**given).items():
            text = alarm["AlarmDescription"]["Fn::Sub"]
            self.assertRegex(text, r"First step: `(aws|requeue) [^`]+`", name)
            self.assertRegex(text, r"^(Act at once|Act tonight|Look tonight|Can wait until the morning)\b", name)
            length = len(re.sub(r"\$\{([\w.]+)\}", lambda value: "x" * longest[value[1]], text))
            # CloudWatch's limit.
            self.assertLessEqual(length, 1024, name)

    def test_an_alarm_tells_whom_it_is_to_tell_and_otherwise_nobody(self):
        ours, pager = {"Ref": "AlarmTopic"}, TOPIC
        for given, told in [
            ({}, []),
            ({"AlarmEmail": "a@example.com"}, [ours]),
            ({"AlarmTopicArn": pager}, [pager]),
            ({"AlarmEmail": "a@example.com", "AlarmTopicArn": pager}, [ours, pager]),
        ]:
            for name, alarm in self.alarms(**given).items():
                self.assertEqual((alarm["AlarmActions"], alarm["OKActions"]), (told, told), name)

    def test_there_is_a_topic_for_an_address_only_and_cloudwatch_of_this_account_may_publish(self):
        def topics(**given):
            resources = deployed(cloudformation(), **given)
            return {name: made["Properties"] for name, made in resources.items() if made["Type"].startswith("AWS::SNS::")}

        self.assertEqual(topics(AlarmTopicArn=TOPIC), {})
        found = topics(AlarmEmail="a@example.com")
        self.assertEqual(found["AlarmTopic"], {"Subscription": [{"Protocol": "email", "Endpoint": "a@example.com"}]})
        self.assertEqual(found["AlarmTopicPolicy"]["Topics"], [{"Ref": "AlarmTopic"}])
        (statement,) = found["AlarmTopicPolicy"]["PolicyDocument"]["Statement"]
        expected = {
            "Effect": "Allow",
            "Principal": {"Service": "cloudwatch.amazonaws.com"},
            "Action": "sns:Publish",
            "Resource": {"Ref": "AlarmTopic"},
            "Condition": {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}},
        }
        self.assertEqual(statement, expected)

    def test_alarms_and_dashboard_can_be_left_out(self):
        for monitoring, alarms, dashboards in [("alarms-and-dashboard", 8, 1), ("alarms", 8, 0), ("none", 0, 0)]:
            kinds = [made["Type"] for made in deployed(cloudformation(), Monitoring=monitoring).values()]
            found = (kinds.count("AWS::CloudWatch::Alarm"), kinds.count("AWS::CloudWatch::Dashboard"))
            self.assertEqual(found, (alarms, dashboards), monitoring)
