"""The template's parameters: the texts that they accept and refuse, and the settings that they set."""

import json
import re
import unittest

from stack import BOUNDARY, GROUP, KEY, PARAMETER, ROOT, SECRET, SUBNETS, TARGET, TARGET_FUNCTION, TOPIC, cloudformation, deployed, refusals, template, translated

DAY = 86_400

# Each optional parameter with its variable, texts that it accepts and texts that it refuses.
OPTIONAL = {
    "Method": ("METHOD", ["PUT", "PATCH"], ["GET", "put"]),
    "ContentType": ("CONTENT_TYPE", ["text/csv", "text/plain; charset=utf-8"], ["text", "/csv", " "]),
    "MessagesPerCall": ("MESSAGES_PER_CALL", ["1", "10000"], ["0", "10001"]),
    "MessageConcurrency": ("CONCURRENCY", ["1", "1000"], ["0", "1001"]),
    "Headers": ("HEADERS", [json.dumps({"Authorization": f"Bearer {SECRET}:token::"}), '{"A":"1",\n"B":"2"}'], ["A: 1", "[]", " "]),
    "AttributeHeaders": ("ATTRIBUTE_HEADERS", ["tenant=X-Tenant", "a.b=X-A, c_d=X-C"], ["tenant", "tenant=", "a=X-A,", " "]),
    "SigningSecret": ("SIGNING_SECRET", ["whsec_bm90IHNlY3JldA==", f"{SECRET} {SECRET}::AWSPREVIOUS:"], ["secret", "whsec_", " "]),
    "ClientCertificate": (
        "CLIENT_CERTIFICATE",
        [f"{SECRET}:certificate::", "-----BEGIN CERTIFICATE-----\nbm90\n-----END CERTIFICATE-----\n"],
        ["certificate.pem", "-----BEGIN PRIVATE KEY-----\nbm90", " "],
    ),
    "ClientKey": (
        "CLIENT_KEY",
        [f"{SECRET}:key::", *(f"-----BEGIN {kind}PRIVATE KEY-----\nbm90" for kind in ("", "RSA ", "EC "))],
        ["key.pem", "-----BEGIN ENCRYPTED PRIVATE KEY-----\nbm90", "-----BEGIN CERTIFICATE-----\nbm90", " "],
    ),
    "Policy": ("POLICY", ['{"preset":"critical"}'], []),
    "Scope": ("SCOPE", ["tenant", "/account/id"], ["account/id", "a tenant", " "]),
    "Strategy": ("STRATEGY", ["visibility"], ["place", ""]),
    "Mode": ("MODE", ["report"], ["off", ""]),
}
OTHERS = {
    "TargetUrl": (
        ["https://api.example.com/orders", "https://[2001:db8::1]:8443/", "http://localhost:3000/", "http://127.0.0.1", "http://[::1]:80/a?b"],
        ["http://api.example.com/", "http://localhost.example.com/", "http://localhost@example.com/", "http://127.1/", "http://0.0.0.0/", "api.example.com"],
    ),
    "TargetFunction": (
        ["orders", "orders:live", "orders:7", "orders:$LATEST", TARGET_FUNCTION, TARGET_FUNCTION.replace("aws", "aws-cn", 1).removesuffix(":live")],
        ["*", "orders:*", "orders:", "a b", "123456789012:function:orders", TARGET_FUNCTION.replace("orders", "*"), TARGET_FUNCTION.replace("lambda", "sqs")],
    ),
    "SecretArns": ([SECRET, SECRET.replace("aws", "aws-us-gov", 1)], [f"{SECRET}:token::", SECRET[:-7], f"{SECRET[:-6]}??????", "*"]),
    "ParameterArns": ([PARAMETER], [f"{PARAMETER}:3", f"{PARAMETER}*", "/orders/signing"]),
    "SecretKmsKeyArn": ([KEY], [KEY.replace("key/", "alias/"), f"{KEY}*", "*"]),
    "KmsKeyArn": ([KEY], [KEY.replace("key/", "alias/"), "alias/aws/sqs", "*"]),
    "OtherKmsKeyArns": ([KEY], [KEY.replace("key/", "alias/"), "*"]),
    "TopicArn": ([TOPIC, f"{TOPIC}.fifo", TOPIC.replace("aws", "aws-cn", 1)], [f"{TOPIC}:0f1e", TOPIC.replace("sns", "sqs"), "orders", "*"]),
    "SharedTable": (["none", "dynamodb"], ["", "redis"]),
    "ReserveConcurrency": (["true"], ["10", ""]),
    "SubnetIds": ([SUBNETS, "subnet-1a2b3c4d"], [f"{SUBNETS},", SUBNETS.replace(",", ", "), GROUP, "subnet-*", "*"]),
    "SecurityGroupIds": ([GROUP, f"{GROUP},sg-1a2b3c4d"], [f"{GROUP},", SUBNETS, "default", "*"]),
    "PermissionsBoundaryArn": ([BOUNDARY, "arn:aws-cn:iam::aws:policy/PowerUserAccess"], ["teams/boundary", BOUNDARY.replace("policy", "role")]),
    "AlarmTopicArn": ([TOPIC], [f"{TOPIC}.fifo", "pager"]),
    "AlarmEmail": (["operators@example.com"], ["operators", "a@b c", "a@b,c@d"]),
    "Monitoring": (["alarms-and-dashboard", "alarms", "none"], ["", "dashboard"]),
    "Fifo": (["true"], ["yes", ""]),
    "MaxReceiveCount": (["5", "1000"], ["4", "1001"]),
    "MessageRetentionPeriod": (["259200", "864000"], ["172800", "1209600"]),
    "MaxMessageAgeSeconds": (["60", "172800"], ["59"]),
    "MaxQueueDepth": (["0", "100000"], ["-1"]),
}
# With these, a FIFO queue is allowed.
FIFO = {"DeadLetterMode": "direct", "MaxReceiveCount": 100}


def takes(parameter, text):
    """Whether CloudFormation accepts the text."""
    if "AllowedValues" in parameter:
        return text in map(str, parameter["AllowedValues"])
    if parameter["Type"] == "Number":
        return parameter["MinValue"] <= float(text) <= parameter.get("MaxValue", float("inf"))
    return re.fullmatch(parameter.get("AllowedPattern", ".*"), text) is not None


class Parameters(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = template()
        cls.parameters = cls.source["Parameters"]
        cls.translated = cloudformation()

    def settings(self, **given):
        """The function's environment with these parameters."""
        variables = deployed(self.translated, **given)["Function"]["Properties"]["Environment"]["Variables"]
        return {name: str(value) if isinstance(value, int) else value for name, value in variables.items()}

    def test_without_optional_parameters_the_function_has_few_settings(self):
        expected = {
            "REQUEUE_TARGET_URL": TARGET,
            "REQUEUE_TIMEOUT_SECONDS": "10",
            "REQUEUE_DEAD_LETTER": "annotate",
            "REQUEUE_RECURSIVE_LOOP": "Allow",
        }
        self.assertEqual(self.settings(TargetUrl=TARGET), expected)

    def test_a_function_as_target_has_neither_a_url_nor_a_time_of_its_own(self):
        expected = {"REQUEUE_TARGET_FUNCTION": "orders", "REQUEUE_DEAD_LETTER": "annotate", "REQUEUE_RECURSIVE_LOOP": "Allow"}
        self.assertEqual(self.settings(TargetFunction="orders"), expected)
        # Its own timeout counts, so MessageTimeout need not fit.
        self.assertFalse(self.refused(TargetUrl="", TargetFunction="orders", FunctionTimeout=10))

    def test_each_optional_parameter_arrives_as_its_setting(self):
        without = self.settings()
        for name, (variable, texts, _) in OPTIONAL.items():
            self.assertEqual(self.settings(**{name: texts[0]}), {**without, f"REQUEUE_{variable}": texts[0]})

    def test_all_optional_parameters_arrive_together(self):
        given = {name: texts[0] for name, (_, texts, _) in OPTIONAL.items()}
        expected = {f"REQUEUE_{variable}": texts[0] for variable, texts, _ in OPTIONAL.values()}
        self.assertEqual(self.settings(**given), {**self.settings(), **expected})

    def test_what_is_left_out_is_the_default_of_the_function(self):
        page = (ROOT / "docs/reference/settings.md").read_text()
        defaults = dict(re.findall(r"^\| `REQUEUE_(\w+)` \|.*\| (.*?) \|$", page, re.MULTILINE))
        for name, (variable, *_) in OPTIONAL.items():
            default = str(self.parameters[name]["Default"])
            self.assertIn(default, ["", defaults[variable].strip("`")])

    def test_the_page_for_services_has_the_defaults(self):
        page = (ROOT / "docs/start/http-target.md").read_text()
        shown = {name: number for number, name in re.findall(r"(\d+)\s[a-z ]+\s\(`([A-Z]\w+)`\)", page.replace("\n", " "))}
        self.assertEqual(shown, {name: str(self.parameters[name]["Default"]) for name in shown})
        self.assertEqual(list(shown), ["MaximumConcurrency", "MessageConcurrency", "MessageTimeout"])
        self.assertIn(f"up to {int(shown['MessageConcurrency']) * int(shown['MaximumConcurrency'])} requests at once", page)

    def test_parameters_take_what_is_sound_and_refuse_what_is_not(self):
        table = {name: (good, bad) for name, (_, good, bad) in OPTIONAL.items()} | OTHERS
        for name, (good, bad) in table.items():
            parameter = self.parameters[name]
            if "Default" in parameter:
                self.assertTrue(takes(parameter, str(parameter["Default"])), name)
            for text in good:
                self.assertTrue(takes(parameter, text), f"{name}: {text}")
            for text in bad:
                self.assertFalse(takes(parameter, text), f"{name}: {text}")

    def test_secrets_are_not_echoed(self):
        hidden = {name for name, parameter in self.parameters.items() if parameter.get("NoEcho")}
        self.assertEqual(hidden, {"Headers", "SigningSecret", "ClientKey"})

    def test_the_answers_to_a_guided_deployment_give_the_settings_of_one_without_parameters(self):
        # SAM takes no empty answer for a hidden parameter.
        answers = {name: "none" if parameter.get("NoEcho") else str(parameter["Default"]) for name, parameter in self.parameters.items()}
        for name, answer in answers.items():
            self.assertTrue(takes(self.parameters[name], answer), name)
        self.assertEqual(self.settings(**answers), self.settings())

    def test_the_page_has_each_parameter_with_its_setting_and_its_default(self):
        page = (ROOT / "docs/reference/parameters.md").read_text()
        rows = re.findall(r"^\| `(\w+)` \| (.*) \| (.*?) ?\|$", page, re.MULTILINE)
        self.assertEqual([name for name, *_ in rows], list(self.parameters))
        for name, meaning, default in rows:
            match self.parameters[name].get("Default"):
                case None:
                    self.assertEqual(default, "required", name)
                case "":
                    self.assertEqual(default, "", name)
                case text:
                    self.assertEqual(default, f"`{text}`", name)
            if name in OPTIONAL:
                self.assertIn(f"`REQUEUE_{OPTIONAL[name][0]}`", meaning)
        groups = self.source["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
        headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
        self.assertEqual(headings, [group["Label"]["default"] for group in groups])

    def test_the_page_has_names_of_the_cdk_and_of_terraform_that_exist(self):
        page = (ROOT / "docs/reference/parameters.md").read_text()
        options = set(re.findall(r"^  readonly (\w+)\?:", (ROOT / "infra/cdk/lib/props.ts").read_text(), re.MULTILINE))
        module = "".join((ROOT / f"infra/terraform/{name}.tf").read_text() for name in ("variables", "options"))
        variables = set(re.findall(r'^variable "(\w+)"', module, re.MULTILINE))
        rows = re.findall(r"^\| `(\w+)` \| (.*)$", page, re.MULTILINE)
        self.assertEqual(len(rows), len(self.parameters))
        for name, meaning in rows:
            (option,) = re.findall(r"CDK: `(\w+)`", meaning) or [name[0].lower() + name[1:]]
            self.assertEqual(option in options, "Not in the CDK." not in meaning, name)
            (variable,) = re.findall(r"Terraform: `(\w+)`", meaning) or [re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()]
            self.assertIn(variable, variables, name)

    def test_the_function_knows_its_dead_letter_queue_where_it_sends_to_it(self):
        for mode in ("annotate", "redrive", "direct"):
            expected = {**self.settings(), "REQUEUE_DEAD_LETTER": mode}
            if mode == "direct":
                expected["REQUEUE_DEAD_LETTER_QUEUE_URL"] = {"Ref": "DeadLetterQueue"}
            self.assertEqual(self.settings(DeadLetterMode=mode), expected)

    def test_the_function_knows_its_table_and_how_many_share_it(self):
        expected = {**self.settings(), "REQUEUE_TABLE": {"Ref": "Table"}, "REQUEUE_MAX_ENVIRONMENTS": "7"}
        self.assertEqual(self.settings(SharedTable="dynamodb", MaximumConcurrency=7), expected)

        pollers = {**expected, "REQUEUE_MAX_ENVIRONMENTS": "500"}
        self.assertEqual(self.settings(SharedTable="dynamodb", MaximumPollers=50), pollers)

    def test_the_greatest_number_of_pollers_is_not_below_the_least(self):
        for most in self.parameters["MaximumPollers"]["AllowedValues"]:
            for least in self.parameters["MinimumPollers"]["AllowedValues"]:
                refused = least > most and (most > 0 or least > 2)
                self.assertEqual(self.refused(MaximumPollers=most, MinimumPollers=least), refused, (most, least))

    def refused(self, **given):
        return bool(refusals(self.source, **given))

    def test_one_target_is_given(self):
        for given, said in [
            ({"TargetUrl": ""}, ["Neither TargetUrl nor TargetFunction is given; give one of them."]),
            ({"TargetFunction": "orders"}, ["TargetUrl and TargetFunction are both given; give one of them."]),
            ({"TargetUrl": "", "TargetFunction": "orders"}, []),
            ({}, []),
        ]:
            self.assertEqual(refusals(self.source, **given), said)

    def test_batches_above_ten_need_a_window(self):
        for size, window, refused in [(1, 0, False), (10, 0, False), (11, 0, True), (11, 1, False), (10000, 20, False)]:
            self.assertEqual(self.refused(BatchSize=size, BatchingWindow=window), refused, (size, window))

    def test_a_table_gathers_batches(self):
        for size in (11, 10000):
            self.assertFalse(self.refused(SharedTable="dynamodb", BatchSize=size), size)
        self.assertFalse(self.refused(**FIFO, Fifo="true", SharedTable="dynamodb"))
        for given in ({"BatchingWindow": 1}, {"BatchSize": 11}, {"BatchSize": 11, "BatchingWindow": 1}):
            self.assertTrue(self.refused(**FIFO, Fifo="true", SharedTable="dynamodb", **given), given)

    def test_a_fifo_queue_has_no_window(self):
        for fifo, window, refused in [("true", 0, False), ("true", 1, True), ("false", 1, False)]:
            self.assertEqual(self.refused(**FIFO, Fifo=fifo, BatchingWindow=window), refused, (fifo, window))
        self.assertTrue(self.refused(**FIFO, Fifo="true", BatchSize=11))

    def test_a_fifo_queue_has_no_copies_that_wait_for_sqs(self):
        for mode, refused in [("annotate", True), ("redrive", False), ("direct", False)]:
            self.assertEqual(self.refused(**{**FIFO, "DeadLetterMode": mode}, Fifo="true"), refused, mode)
            self.assertFalse(self.refused(**{**FIFO, "DeadLetterMode": mode}), mode)

    def test_messages_that_wait_in_their_place_have_receives_for_the_built_in_retries(self):
        fifo = {"Fifo": "true", "DeadLetterMode": "direct"}
        for place, needed in [(fifo, 100), ({**fifo, "BatchSize": 1}, 51), ({"Strategy": "visibility"}, 51)]:
            for receives in range(5, 1001):
                self.assertEqual(self.refused(**place, MaxReceiveCount=receives), receives < needed, (place, receives))
            for given in ({"Policy": '{"maxRetries":4}'}, {"Mode": "report"}):
                self.assertFalse(self.refused(**place, **given), (place, given))
        self.assertFalse(self.refused(Strategy="copy"))
        page = (ROOT / "docs/reference/policy.md").read_text()
        (most,) = re.findall(r"^\| `maxRetries` \|.*\| (\d+) \|$", page, re.MULTILINE)
        (said,) = refusals(self.source, Strategy="visibility")
        most = int(most)
        # In a FIFO queue, a message also uses a receive when another one of its group fails.
        self.assertIn(f"the policy's {most} retries is a receive. Give a MaxReceiveCount of {most + 1}, with Fifo of {2 * most},", said)

    def test_a_vpc_has_subnets_and_security_groups(self):
        both = {"SubnetIds": SUBNETS, "SecurityGroupIds": GROUP}
        for given, refused in [({}, False), (both, False), *(({name: both[name]}, True) for name in both)]:
            self.assertEqual(self.refused(**given), refused, given)

    def test_a_client_certificate_and_its_key_belong_together(self):
        certificate, key = {"ClientCertificate": SECRET}, {"ClientKey": SECRET}
        for given, refused in [(certificate, True), (key, True), ({**certificate, "ClientKey": "none"}, True), ({**certificate, **key}, False)]:
            self.assertEqual(self.refused(**given), refused, given)

    def test_messages_end_before_the_function_settles(self):
        values = self.parameters["MessageTimeout"]["AllowedValues"]
        for timeout in map(int, self.parameters["FunctionTimeout"]["AllowedValues"]):
            longest = int(timeout - min(5, timeout / 4))
            if longest < max(values):
                self.assertIn(longest, values)
            for seconds in values:
                said = refusals(self.source, FunctionTimeout=timeout, MessageTimeout=seconds)
                self.assertEqual([f"at most {longest}." in text for text in said], [True] * (seconds > longest), (timeout, seconds))

    def test_nobody_is_to_be_told_of_alarms_that_there_are_not(self):
        for told in ({"AlarmEmail": "a@example.com"}, {"AlarmTopicArn": TOPIC}):
            self.assertTrue(self.refused(Monitoring="none", **told))
            self.assertFalse(self.refused(Monitoring="alarms", **told))
        self.assertFalse(self.refused(Monitoring="none"))

    # tests/batch/retention.rs compares with the presets themselves.
    def test_messages_outlive_the_longest_retries_and_leave_four_days_to_look_at_a_dead_letter(self):
        periods = self.parameters["MessageRetentionPeriod"]["AllowedValues"]
        self.assertGreater(min(periods), 2 * DAY + 900)
        self.assertGreaterEqual(14 * DAY - max(periods), 4 * DAY)
