#!/usr/bin/env python3
"""`requeue doctor` as a shell runs it, on functions and queues of an emulator: sound ones, and one for each fault.

Needs $REQUEUE_TEST_MINISTACK (endpoint URL, with IAM's simulator) and $REQUEUE_TEST_MOTO (without it).
`tests/run doctor` provides both.
"""

import http.server
import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
import unittest
import urllib.error
import urllib.request
import zipfile

import boto3

from deployed_test import ROOT, build_for_tests

COMMAND = ROOT / "target" / "debug" / "requeue"
MINISTACK = os.environ.get("REQUEUE_TEST_MINISTACK", "")
MOTO = os.environ.get("REQUEUE_TEST_MOTO", "")
# moto fails where it lacks an operation, and retries of that take seconds.
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1"}

DAY = 86_400
POLLER = ["sqs:ReceiveMessage", "sqs:GetQueueAttributes", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility"]
SECRET = "s3cret-of-a-header"
# The ARNs that settings name instead of a secret.
STORED = "arn:aws:secretsmanager:us-east-1:123456789012:secret:orders-AbCdEf"
PARAMETER = "arn:aws:ssm:us-east-1:123456789012:parameter/orders/signing"
NO_ROLE = "arn:aws:iam::000000000000:role/none"
TOPIC = "arn:aws:sns:us-east-1:123456789012:on-call"


def doctor(endpoint, *arguments, **environment):
    """Exit status, findings by queue and id, and the whole output."""
    command = [COMMAND, "doctor", *arguments, "--json"]
    done = subprocess.run(command, env={**KEYS, "AWS_ENDPOINT_URL": endpoint, **environment}, capture_output=True, text=True)
    printed = done.stdout + done.stderr
    if not done.stdout:
        return done.returncode, {}, printed
    findings = [finding for deployment in json.loads(done.stdout)["deployments"] for finding in deployment["findings"]]
    return done.returncode, {(finding["queue"], finding["id"]): finding for finding in findings}, printed


def run(command, endpoint=MINISTACK):
    """Runs a command of AWS's command line, which is beside this Python."""
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    script = f'aws() {{ command aws --endpoint-url "{endpoint}" "$@"; }}\nset -e\n{command}'
    subprocess.run(["bash", "-c", script], env={**KEYS, "PATH": path, "AWS_DEFAULT_REGION": "us-east-1"}, check=True, stdout=subprocess.PIPE)


def runnable(remedy):
    """Whether it is of commands alone, without a word in capitals that only a person can replace."""
    named = re.search(r" (TOPIC|SUBNETS|GROUP|ROLE|NAME|ARN|URL|ALIAS)\b", remedy)
    return not named and all(line.startswith("aws ") for line in remedy.splitlines())


def at(findings, level):
    return {place for place, finding in findings.items() if finding["level"] == level}


class Account:
    """Makes queues, roles and functions in one emulator."""

    def __init__(self, endpoint):
        def client(service):
            return boto3.client(
                service,
                endpoint_url=endpoint,
                region_name="us-east-1",
                aws_access_key_id="test",
                aws_secret_access_key="test",
            )

        self.sqs, self.functions, self.iam = client("sqs"), client("lambda"), client("iam")
        self.kms, self.logs, self.cloudwatch = client("kms"), client("logs"), client("cloudwatch")
        self.ec2, self.secrets, self.ssm = client("ec2"), client("secretsmanager"), client("ssm")
        self.dynamodb = client("dynamodb")

    def queue(self, name, **attributes):
        """Makes it and returns its ARN."""
        attributes = {key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()}
        self.sqs.create_queue(QueueName=name, Attributes=attributes)
        return self.attributes(name)["QueueArn"]

    def url(self, name):
        return self.sqs.get_queue_url(QueueName=name)["QueueUrl"]

    def attributes(self, name):
        return self.sqs.get_queue_attributes(QueueUrl=self.url(name), AttributeNames=["All"])["Attributes"]

    def role(self, name, *statements):
        """Makes it and returns its ARN."""
        trust = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
        document = lambda *statements: json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        role = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=document(trust))["Role"]
        self.iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=document(*statements))
        return role["Arn"]

    def function(self, name, role, timeout, **variables):
        """Makes a function. Nothing invokes it."""
        package = io.BytesIO()
        with zipfile.ZipFile(package, "w") as archive:
            archive.writestr("bootstrap", "#!/bin/sh\n")
        self.functions.create_function(
            FunctionName=name,
            Runtime="provided.al2023",
            Handler="bootstrap",
            Role=role,
            Code={"ZipFile": package.getvalue()},
            Timeout=timeout,
            LoggingConfig={"LogFormat": "JSON"},
            Environment={"Variables": variables},
        )
        self.functions.get_waiter("function_active_v2").wait(FunctionName=name, WaiterConfig={"Delay": 0.2})

    def mapping(self, function, queue, **settings):
        return self.functions.create_event_source_mapping(FunctionName=function, EventSourceArn=queue, **settings)["UUID"]

    def good(self, name):
        """Makes the resources of the template, without the property RecursiveLoop."""
        dead = self.queue(f"{name}-dead", MessageRetentionPeriod=str(14 * DAY))
        redrive = {"deadLetterTargetArn": dead, "maxReceiveCount": 5}
        queue = self.queue(name, VisibilityTimeout="380", MessageRetentionPeriod=str(7 * DAY), RedrivePolicy=redrive)
        secret = self.secrets.create_secret(Name=name, SecretString="{}")["ARN"]
        role = self.role(
            name,
            {"Effect": "Allow", "Action": [*POLLER, "sqs:SendMessage"], "Resource": queue},
            {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": secret},
            {"Effect": "Allow", "Action": ["logs:CreateLogStream", "logs:PutLogEvents"], "Resource": f"arn:aws:logs:*:*:log-group:/aws/lambda/{name}:*"},
        )
        self.logs.create_log_group(logGroupName=f"/aws/lambda/{name}")
        variables = {
            "REQUEUE_TARGET_URL": "https://example.com/orders",
            "REQUEUE_TIMEOUT_SECONDS": "10",
            "REQUEUE_DEAD_LETTER": "annotate",
            "REQUEUE_RECURSIVE_LOOP": "Allow",
            "REQUEUE_HEADERS": json.dumps({"Authorization": SECRET}),
            "REQUEUE_SIGNING_SECRET": f"{secret}:signing::",
        }
        self.function(name, role, 60, **variables)
        self.mapping(
            name,
            queue,
            BatchSize=10,
            FunctionResponseTypes=["ReportBatchItemFailures"],
            ScalingConfig={"MaximumConcurrency": 10},
        )

        self.alarm(f"{name}-dead", "ApproximateNumberOfMessagesVisible")
        self.alarm(name, "ApproximateAgeOfOldestMessage")
        self.alarm(name, "MessageAge", **self.age(name))

    @staticmethod
    def age(name, service=None):
        """Requeue's metric of the age of messages."""
        values = {"Service": service or name, "Queue": name}
        return {"Namespace": "Requeue", "Dimensions": [{"Name": key, "Value": value} for key, value in values.items()]}

    def alarm(self, queue, metric, **settings):
        """Makes an alarm that notifies a topic."""
        settings = {"AlarmActions": [TOPIC], **settings}
        if "Metrics" not in settings:
            dimensions = [{"Name": "QueueName", "Value": queue}]
            settings = {"Namespace": "AWS/SQS", "MetricName": metric, "Dimensions": dimensions, "Statistic": "Maximum", "Period": 60, **settings}
        self.cloudwatch.put_metric_alarm(
            AlarmName=f"{queue}-{metric}", EvaluationPeriods=1, ComparisonOperator="GreaterThanThreshold", Threshold=0, **settings
        )

    def sent(self, name, metric):
        """Writes that a copy was sent a minute ago."""
        value = {"MetricName": metric, "Value": 1, "Timestamp": time.time() - 60, "Dimensions": self.age(name)["Dimensions"]}
        self.cloudwatch.put_metric_data(Namespace="Requeue", MetricData=[value])

    def table(self, name, attribute="id", **settings):
        """Makes a table, and returns its ARN."""
        made = self.dynamodb.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": attribute, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": attribute, "KeyType": "HASH"}],
            **{"BillingMode": "PAY_PER_REQUEST", **settings},
        )
        return made["TableDescription"]["TableArn"]

    def expire(self, table):
        self.dynamodb.update_time_to_live(TableName=table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"})

    def set(self, function, **variables):
        """Sets these variables beside the others."""
        before = self.functions.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
        self.functions.update_function_configuration(FunctionName=function, Environment={"Variables": {**before, **variables}})
        self.functions.get_waiter("function_updated_v2").wait(FunctionName=function, WaiterConfig={"Delay": 0.2})

    def allow_loop(self, name):
        self.functions.put_function_recursion_config(FunctionName=name, RecursiveLoop="Allow")


class OnMinistack(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.maxDiff = None
        cls.account = Account(MINISTACK)

    def test_a_good_deployment_is_in_no_danger(self):
        self.account.good("good")
        self.account.allow_loop("good")
        for subject in (["--function", "good"], ["--queue", "good"]):
            status, findings, printed = doctor(MINISTACK, *subject)
            self.assertEqual((status, at(findings, "danger"), at(findings, "unknown")), (0, set(), set()), printed)
            self.assertGreaterEqual(len(at(findings, "ok")), 20, printed)
            self.assertNotIn(SECRET, printed)

    def test_a_table_is_checked_until_it_is_as_the_function_needs_it(self):
        account = self.account
        account.good("sharing")
        account.allow_loop("sharing")
        account.set("sharing", REQUEUE_POLICY='{"rateLimit": {"limit": 49}}')
        ids = ("table", "table-permissions", "rate-limit")
        found = lambda: [doctor(MINISTACK, "--function", "sharing")[1].get((None, id), {}) for id in ids]
        levels = lambda: [finding.get("level") for finding in found()]
        self.assertEqual(levels(), [None, None, None])

        account.set("sharing", REQUEUE_TABLE="limits", REQUEUE_MAX_ENVIRONMENTS="9")
        # The permissions on a table come after the table.
        self.assertEqual(levels(), ["danger", None, "warning"])
        table, _, limit = found()
        self.assertEqual(table["found"], "there is no table limits in us-east-1")
        create = table["remedies"][0]
        self.assertEqual(limit["remedies"], ["template, below Environment: Variables: `REQUEUE_MAX_ENVIRONMENTS: 10`"])

        # The remedies, as a shell runs them.
        run(create)
        self.assertEqual(levels(), ["warning", "danger", "warning"])
        run(found()[0]["remedies"][0])
        self.assertEqual(found()[0]["found"], "limits is ACTIVE; items expire by expires")
        run(found()[1]["remedies"][0])
        account.set("sharing", REQUEUE_MAX_ENVIRONMENTS="10")
        self.assertEqual(levels(), ["ok", "ok", "ok"])

        account.table("other", attribute="key")
        account.set("sharing", REQUEUE_TABLE="other")
        self.assertEqual(levels(), ["danger", None, "ok"])
        self.assertEqual(found()[0]["found"], "the key of other is key (S), and must be id (S) alone")

    def test_a_target_is_checked_until_it_can_be_invoked(self):
        account = self.account
        account.good("caller")
        account.allow_loop("caller")
        account.set("caller", REQUEUE_TARGET_URL="", REQUEUE_TARGET_FUNCTION="charge:live")
        ids = ("target", "target-timeout", "target-concurrency", "target-permissions")
        places = [*((None, id) for id in ids), ("caller", "other-consumers")]

        def found():
            findings = doctor(MINISTACK, "--function", "caller")[1]
            return [findings.get(place, {}) for place in places]

        levels = lambda: [finding.get("level") for finding in found()]
        self.assertEqual(levels(), ["danger", None, None, None, "ok"])
        self.assertEqual(found()[0]["found"], "there is no function charge:live in us-east-1")

        role = account.role("charge", {"Effect": "Allow", "Action": "logs:PutLogEvents", "Resource": "*"})
        account.function("charge", role, 51)
        version = account.functions.publish_version(FunctionName="charge")["Version"]
        account.functions.create_alias(FunctionName="charge", Name="live", FunctionVersion=version)
        account.functions.put_function_concurrency(FunctionName="charge", ReservedConcurrentExecutions=9)
        account.mapping("charge", account.attributes("caller")["QueueArn"])
        self.assertEqual(levels(), ["ok", "warning", "warning", "danger", "danger"])

        # The remedies, as a shell runs them.
        _, timeout, concurrency, permissions, mapping = found()
        for finding in (timeout, concurrency, permissions, mapping):
            run(finding["remedies"][0])
        self.assertEqual(levels(), ["ok"] * 5)

    def test_each_danger_is_found(self):
        account = self.account
        account.queue("short-lived", MessageRetentionPeriod=str(DAY), RedriveAllowPolicy={"redrivePermission": "denyAll"})
        dead = account.attributes("short-lived")["QueueArn"]
        gone = account.queue("gone")
        redrive = lambda target, count: {"deadLetterTargetArn": target, "maxReceiveCount": count}
        queues = {
            "careless": account.queue("careless", VisibilityTimeout="10"),
            "denied": account.queue("denied", MessageRetentionPeriod=str(4 * DAY), RedrivePolicy=redrive(dead, 1)),
            "orphaned": account.queue("orphaned", RedrivePolicy=redrive(gone, 5)),
        }
        account.sqs.delete_queue(QueueUrl=account.url("gone"))
        key = "11111111-2222-3333-4444-555555555555"
        account.sqs.set_queue_attributes(QueueUrl=account.url("denied"), Attributes={"KmsMasterKeyId": key})
        allowed = {"Effect": "Allow", "Action": POLLER, "Resource": "*"}
        role = account.role("broken", allowed)
        account.function(
            "broken",
            role,
            30,
            REQUEUE_RECURSIVE_LOOP="Allow",
            REQUEUE_DEAD_LETTER="direct",
            REQUEUE_DEAD_LETTER_QUEUE_URL="https://sqs.us-east-1.amazonaws.com/000000000000/nowhere",
            REQUEUE_SIGNING_SECRET=STORED,
        )
        filters = {"Filters": [{"Pattern": json.dumps({"body": {"retryCount": [1]}})}, {"Pattern": '{"body":["text"]}'}]}
        account.mapping("broken", queues["careless"], FilterCriteria=filters)
        account.mapping("broken", queues["denied"], FunctionResponseTypes=["ReportBatchItemFailures"])
        account.mapping("broken", queues["orphaned"], FunctionResponseTypes=["ReportBatchItemFailures"])
        account.functions.put_function_concurrency(FunctionName="broken", ReservedConcurrentExecutions=0)

        status, findings, printed = doctor(MINISTACK, "--function", "broken")
        everywhere = ["direct-queue", "queue-permissions"]
        expected = {(None, "recursive-loop"), (None, "concurrency"), (None, "secret-permissions")}
        expected |= {(queue, id) for queue in queues for id in everywhere}
        careless = ["partial-batch-responses", "filters", "visibility-timeout"]
        expected |= {("careless", id) for id in careless}
        denied = ["max-receive-count", "dead-letter-queue", "key-permissions"]
        expected |= {("denied", id) for id in denied}
        expected.add(("orphaned", "dead-letter-queue"))
        self.assertEqual((status, at(findings, "danger")), (3, expected), printed)
        # SQS refuses a redrive policy whose queue does not allow it.
        self.assertEqual(findings["denied", "max-receive-count"]["remedies"], ["after dead-letter-queue is fixed: run requeue doctor again"])
        # If the send to the dead-letter queue fails, Requeue needs a redrive policy, and there is none.
        self.assertIn(("careless", "redrive-policy"), at(findings, "warning"))
        for place in at(findings, "danger"):
            self.assertTrue(findings[place]["remedies"], place)

    def test_settings_that_keep_a_function_from_starting_are_told_without_secrets(self):
        self.account.function("misread", NO_ROLE, 30, REQUEUE_WRAP="maybe", REQUEUE_HEADERS=SECRET)
        status, findings, printed = doctor(MINISTACK, "--function", "misread")
        self.assertEqual((status, at(findings, "danger")), (3, {(None, "settings"), (None, "mapping")}), printed)
        self.assertIn("REQUEUE_WRAP is `maybe`: must be one of when-needed, never", findings[None, "settings"]["found"])
        self.assertNotIn(SECRET, printed)

    def test_a_start_that_failed_is_a_danger_until_a_batch_or_a_new_configuration(self):
        account = self.account
        account.good("failing")
        account.allow_loop("failing")
        (mapping,) = account.functions.list_event_source_mappings(FunctionName="failing")["EventSourceMappings"]
        account.functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        account.logs.create_log_stream(logGroupName="/aws/lambda/failing", logStreamName="one")

        def log(**fields):
            event = {"timestamp": int(time.time() * 1000), "message": json.dumps({"level": "ERROR", "fields": fields})}
            account.logs.put_log_events(logGroupName="/aws/lambda/failing", logStreamName="one", logEvents=[event])
            time.sleep(0.01)
            findings = doctor(MINISTACK, "--function", "failing")[1]
            return findings[None, "settings"], findings["failing", "mapping-enabled"]

        error = "REQUEUE_TARGET_URL is missing: set it to the URL for the messages"
        cannot_start = {"message": "the function cannot start", "event": "cannot-start", "error": error}
        settings, enabled = log(**cannot_start)
        self.assertEqual(settings["level"], "danger", settings)
        self.assertRegex(settings["found"], f"the function could not start at [0-9:]+ UTC: {error}")
        self.assertEqual(enabled["remedies"], ["after settings is fixed: run requeue doctor again"])
        settings, enabled = log(message="batch", received=1)
        self.assertEqual(settings["level"], "ok", settings)
        self.assertIn("--enabled", enabled["remedies"][0])
        self.assertEqual(log(**cannot_start)[0]["level"], "danger")
        time.sleep(1)
        account.set("failing", REQUEUE_TIMEOUT_SECONDS="9")
        settings = doctor(MINISTACK, "--function", "failing")[1][None, "settings"]
        self.assertEqual(settings["level"], "ok", settings)

    def test_a_function_without_requeue_is_one_finding_without_a_command_to_paste(self):
        account = self.account
        account.good("audited")
        account.allow_loop("audited")
        account.function("audit", NO_ROLE, 3)
        account.mapping("audit", account.attributes("audited")["QueueArn"])
        _, findings, printed = doctor(MINISTACK, "--queue", "audited")
        self.assertEqual(at(findings, "danger") | at(findings, "warning"), {("audited", "other-consumers")}, printed)
        (remedy,) = findings["audited", "other-consumers"]["remedies"]
        self.assertIn("function:audit", remedy)
        self.assertTrue(all(line.startswith("# ") for line in remedy.splitlines()), remedy)
        self.assertEqual(len(json.loads(printed)["deployments"]), 1)

    def test_a_changed_configuration_reaches_the_alias(self):
        account = self.account
        account.good("repointed")
        account.allow_loop("repointed")
        account.functions.update_function_configuration(FunctionName="repointed", LoggingConfig={"LogFormat": "Text"})
        account.functions.get_waiter("function_updated_v2").wait(FunctionName="repointed", WaiterConfig={"Delay": 0.2})
        version = account.functions.publish_version(FunctionName="repointed")["Version"]
        account.functions.create_alias(FunctionName="repointed", Name="live", FunctionVersion=version)
        account.mapping("repointed:live", account.attributes("repointed")["QueueArn"])
        logs = lambda: doctor(MINISTACK, "--function", "repointed:live")[1][None, "logs"]
        self.assertEqual(logs()["level"], "warning")
        run(logs()["remedies"][0].replace("# aws ", "aws "))
        self.assertEqual(logs()["level"], "ok")

    def test_secrets_that_the_role_may_not_read_are_named_until_it_may(self):
        role = self.account.role("unread", {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": f"{STORED}-other"})
        partial = STORED[:-7]
        headers = {"Authorization": f"{SECRET} {STORED}:token::", "X-Key": partial}
        self.account.function(
            "unread", role, 30, REQUEUE_HEADERS=json.dumps(headers), REQUEUE_SIGNING_SECRET=f"{PARAMETER}:3 {STORED}::AWSPREVIOUS:"
        )
        secrets = lambda: doctor(MINISTACK, "--function", "unread")[1][None, "secret-permissions"]
        found = secrets()
        self.assertEqual(found["level"], "danger", found)
        for place in [f"secretsmanager:GetSecretValue on {STORED}:", f"ssm:GetParameter on {PARAMETER}:"]:
            self.assertIn(place, found["found"])
        self.assertNotIn(SECRET, json.dumps(found))
        for command in found["remedies"][0].splitlines():
            *_, name, _, policy, _, document = shlex.split(command)
            self.account.iam.put_role_policy(RoleName=name, PolicyName=policy, PolicyDocument=document)
        # Unknown only for the secret whose ARN is not whole.
        found = secrets()
        self.assertEqual(found["level"], "unknown", found)
        self.assertIn(f"secretsmanager:GetSecretValue on {partial} ", found["found"])
        any_end = {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": f"{partial}-??????"}
        document = json.dumps({"Version": "2012-10-17", "Statement": [any_end]})
        self.account.iam.put_role_policy(RoleName="unread", PolicyName="any-end", PolicyDocument=document)
        # The secrets are of another account, which does not show their keys.
        found = secrets()
        self.assertEqual(found["level"], "unknown", found)
        self.assertNotIn("GetSecretValue", found["found"])
        self.assertIn("secretsmanager:DescribeSecret", found["found"])

    def test_a_deny_in_the_policy_of_a_queue_is_found_unless_its_conditions_exclude_the_role(self):
        self.account.good("walled")
        self.account.allow_loop("walled")
        deny = {"Effect": "Deny", "Principal": "*", "Action": "sqs:*", "Resource": self.account.attributes("walled")["QueueArn"]}
        for condition, level in [
            ({"Bool": {"aws:SecureTransport": "false"}}, "ok"),
            ({"StringNotEquals": {"aws:SourceVpce": "vpce-1"}}, "unknown"),
            ({}, "danger"),
        ]:
            policy = json.dumps({"Version": "2012-10-17", "Statement": [{**deny, "Condition": condition} if condition else deny]})
            self.account.sqs.set_queue_attributes(QueueUrl=self.account.url("walled"), Attributes={"Policy": policy})
            found = doctor(MINISTACK, "--function", "walled")[1]["walled", "queue-permissions"]
            self.assertEqual(found["level"], level, found)

    def test_a_key_has_to_be_enabled_and_its_policy_has_to_concern_the_role(self):
        account = self.account
        account.good("sealed")
        account.allow_loop("sealed")
        key = account.kms.create_key()["KeyMetadata"]["Arn"]
        account.kms.create_alias(AliasName="alias/sealed", TargetKeyId=key)
        account.sqs.set_queue_attributes(QueueUrl=account.url("sealed"), Attributes={"KmsMasterKeyId": "alias/sealed"})
        use = {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": key}
        account.iam.put_role_policy(
            RoleName="sealed", PolicyName="key", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [use]})
        )
        role = account.iam.get_role(RoleName="sealed")["Role"]["Arn"]
        root = f"arn:aws:iam::{role.split(':')[4]}:root"
        key_level = lambda: doctor(MINISTACK, "--function", "sealed")[1]["sealed", "key-permissions"]["level"]
        for principal, level in [(root, "ok"), (role, "ok"), (f"{role}-other", "danger")]:
            statement = {"Effect": "Allow", "Principal": {"AWS": principal}, "Action": "kms:*", "Resource": "*"}
            policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
            account.kms.put_key_policy(KeyId=key, PolicyName="default", Policy=policy)
            self.assertEqual(key_level(), level, principal)
        account.kms.put_key_policy(KeyId=key, PolicyName="default", Policy=policy.replace(f"{role}-other", role))
        self.assertEqual(key_level(), "ok")
        account.kms.disable_key(KeyId=key)
        self.assertEqual(key_level(), "danger")

    def test_consumers_of_the_queue_and_of_its_dead_letters_are_named(self):
        account = self.account
        account.good("shared")
        account.allow_loop("shared")
        account.function("rival", NO_ROLE, 30)
        queue, dead = (account.attributes(name)["QueueArn"] for name in ("shared", "shared-dead"))
        rival, again = account.mapping("rival", queue), account.mapping("shared", dead)
        redrive = json.dumps({"deadLetterTargetArn": queue, "maxReceiveCount": 5})
        account.sqs.set_queue_attributes(QueueUrl=account.url("shared-dead"), Attributes={"RedrivePolicy": redrive})
        _, findings, printed = doctor(MINISTACK, "--function", "shared")
        for id, level, named in [
            ("other-consumers", "warning", [":function:rival", rival]),
            ("dead-letter-consumers", "danger", [":function:shared", again]),
            ("dead-letter-queue", "danger", [queue]),
        ]:
            found = findings["shared", id]
            self.assertEqual(found["level"], level, found)
            for name in named:
                self.assertIn(name, json.dumps(found))

    def test_alarms_are_found_on_every_page_and_have_to_notify(self):
        account = self.account
        account.good("watched")
        account.allow_loop("watched")
        found = lambda: [doctor(MINISTACK, "--function", "watched")[1]["watched", id] for id in ("dead-letter-alarm", "age-alarm")]
        levels = lambda: [finding["level"] for finding in found()]
        names = ["watched-dead-ApproximateNumberOfMessagesVisible", "watched-MessageAge", "watched-ApproximateAgeOfOldestMessage"]
        dead, through, waiting = (f"{name} notifies {TOPIC}" for name in names)
        self.assertEqual([finding["found"] for finding in found()], [dead, f"{through}; {waiting}"])
        account.cloudwatch.disable_alarm_actions(AlarmNames=names[:1])
        dead, _ = found()
        self.assertEqual((dead["level"], dead["found"]), ("warning", f"{names[0]} reads it, but has no enabled action that notifies anybody"))
        _, command = dead["remedies"][0].splitlines()
        *_, enabled = shlex.split(command)
        account.cloudwatch.enable_alarm_actions(AlarmNames=[enabled])
        account.alarm("watched", "ApproximateAgeOfOldestMessage", AlarmActions=[])
        self.assertEqual(levels(), ["ok", "warning"])
        account.cloudwatch.delete_alarms(AlarmNames=names)
        dead, age = found()
        self.assertEqual((dead["level"], age["level"]), ("warning", "warning"))
        # Neither metric alone shows all messages, and the metrics of another function show none of these.
        account.alarm("watched", "ApproximateAgeOfOldestMessage")
        account.alarm("watched", "MessageAge", **account.age("watched", "other"))
        _, age = found()
        self.assertEqual(age["level"], "warning")
        self.assertIn("reads MessageAge of watched with the Service watched, and SQS leaves out messages", age["found"])
        account.alarm("watched", "MessageAge", **account.age("watched"))
        self.assertEqual(levels(), ["warning", "ok"])
        account.cloudwatch.delete_alarms(AlarmNames=names[2:])
        _, age = found()
        self.assertEqual(age["level"], "warning")
        self.assertIn("MessageAge has no values while nothing receives messages", age["found"])
        account.alarm("watched", "ApproximateAgeOfOldestMessage")
        account.alarm("watched", "MessageAge", AlarmActions=[], **account.age("watched"))
        self.assertEqual(levels(), ["warning", "warning"])
        account.cloudwatch.delete_alarms(AlarmNames=names)
        # The printed command makes an alarm.
        options = shlex.split(dead["remedies"][0].splitlines()[0])
        option = lambda name: options[options.index(f"--{name}") + 1]
        self.assertEqual(option("dimensions").rsplit("=", 1)[1], "watched-dead")
        account.alarm(option("dimensions").rsplit("=", 1)[1], option("metric-name"))
        # More alarms fill the first page of 100.
        for number in range(100):
            account.alarm("a-filling", f"{number:03}")
        account.alarm("watched", "ApproximateAgeOfOldestMessage")
        account.alarm("watched", "MessageAge", **account.age("watched"))
        self.assertEqual(levels(), ["ok", "ok"], found())

    def test_a_log_group_without_metrics_is_found(self):
        account = self.account
        account.good("frugal")
        account.allow_loop("frugal")
        logs = lambda: doctor(MINISTACK, "--function", "frugal")[1][None, "logs"]
        self.assertEqual(logs()["level"], "ok")
        account.logs.delete_log_group(logGroupName="/aws/lambda/frugal")
        account.logs.create_log_group(logGroupName="/aws/lambda/frugal", logGroupClass="INFREQUENT_ACCESS")
        found = logs()
        self.assertEqual(found["level"], "warning", found)
        self.assertIn("the log group /aws/lambda/frugal has the class INFREQUENT_ACCESS", found["found"])

    def test_a_queue_without_a_mapping_is_looked_at_as_a_workers(self):
        self.account.queue("worked-on", VisibilityTimeout="0")
        status, findings, printed = doctor(MINISTACK, "--queue", "worked-on")
        self.assertEqual((status, at(findings, "danger")), (3, {("worked-on", "visibility-timeout")}), printed)
        # The emulator does not implement ListDeadLetterSourceQueues, so this may be a dead-letter queue.
        self.assertEqual(findings["worked-on", "redrive-policy"]["level"], "unknown", printed)

    def test_a_workers_message_may_be_handled_as_long_as_its_target_function_runs(self):
        self.account.function("charge-slowly", NO_ROLE, 5)
        target = {"REQUEUE_TARGET_FUNCTION": "charge-slowly"}
        for visibility, level in [("19", "warning"), ("20", "ok")]:
            queue = f"worked-on-{visibility}"
            self.account.queue(queue, VisibilityTimeout=visibility)
            _, findings, printed = doctor(MINISTACK, "--queue", queue, **target)
            found = findings[queue, "visibility-timeout"]
            self.assertEqual(found["level"], level, printed)
            self.assertIn("a handler may run for 20 s", found["found"])
            settings = findings[None, "settings"]["found"]
            self.assertIn("10 invocations of up to 10 messages at once, 20 s for each", settings)

    def test_the_version_of_an_alias_is_looked_at(self):
        account, settings = self.account, lambda **more: {"Variables": {"REQUEUE_RECURSIVE_LOOP": "Allow", **more}}
        account.good("aliased")
        account.allow_loop("aliased")
        functions, wait = account.functions, lambda: account.functions.get_waiter("function_updated_v2").wait(FunctionName="aliased", WaiterConfig={"Delay": 0.2})
        first = functions.publish_version(FunctionName="aliased")["Version"]
        # Only the alias has the mapping, and the unpublished settings are invalid.
        functions.create_alias(FunctionName="aliased", Name="live", FunctionVersion=first)
        (mapping,) = functions.list_event_source_mappings(FunctionName="aliased")["EventSourceMappings"]
        functions.delete_event_source_mapping(UUID=mapping["UUID"])
        account.mapping("aliased:live", account.attributes("aliased")["QueueArn"], FunctionResponseTypes=["ReportBatchItemFailures"], ScalingConfig={"MaximumConcurrency": 10})
        functions.update_function_configuration(FunctionName="aliased", Environment=settings(REQUEUE_WRAP="maybe"))
        wait()
        arn = functions.get_function(FunctionName="aliased")["Configuration"]["FunctionArn"]
        for name in ("aliased:live", f"{arn}:live"):
            status, findings, printed = doctor(MINISTACK, "--function", name)
            self.assertEqual((status, at(findings, "danger"), at(findings, "unknown")), (0, set(), set()), printed)
        _, findings, printed = doctor(MINISTACK, "--function", "aliased")
        self.assertEqual(at(findings, "danger"), {(None, "settings")}, printed)
        self.assertEqual(findings[None, "mapping"]["remedies"], ["requeue doctor --region us-east-1 --function aliased:live"], printed)
        # The same by its queue.
        _, findings, printed = doctor(MINISTACK, "--queue-url", account.url("aliased"))
        self.assertEqual(at(findings, "danger"), set(), printed)

    def test_a_remedy_cures(self):
        """Runs the printed commands as they stand, except those with a name that only a person knows."""
        self.account.good("patient")
        self.account.allow_loop("patient")
        self.account.sqs.set_queue_attributes(
            QueueUrl=self.account.url("patient"), Attributes={"VisibilityTimeout": "60", "MaximumMessageSize": "1024"}
        )
        status, findings, printed = doctor(MINISTACK, "--function", "patient", "--strict")
        ill = {("patient", "visibility-timeout"), ("patient", "message-size")}
        self.assertEqual((status, at(findings, "warning")), (3, ill), printed)
        status, others, printed = doctor(MINISTACK, "--function", "patient", "--strict", "--ignore", "filters,message-size,visibility-timeout")
        self.assertEqual((status, at(others, "warning"), ill & set(others)), (0, set(), set()), printed)
        self.assertEqual(doctor(MINISTACK, "--function", "patient", "--ignore", "visibility")[0], 2)
        for place in ill:
            name, value = findings[place]["remedies"][0].rsplit(" ", 1)[1].split("=")
            self.account.sqs.set_queue_attributes(QueueUrl=self.account.url("patient"), Attributes={name: value})
        status, findings, printed = doctor(MINISTACK, "--function", "patient", "--strict")
        self.assertEqual((status, at(findings, "warning")), (0, set()), printed)

    def test_commands_in_the_printed_order_mend_what_is_broken_at_once(self):
        account = self.account
        uuid = lambda name: account.functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"][0]["UUID"]
        change = lambda name, **settings: account.functions.update_event_source_mapping(UUID=uuid(name), **settings)
        attributes = lambda name, **settings: account.sqs.set_queue_attributes(QueueUrl=account.url(name), Attributes=settings)
        redrive = lambda name, target, count: attributes(name, RedrivePolicy=json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": count}))
        arn = lambda name: account.attributes(name)["QueueArn"]
        configure = lambda name, **settings: (
            account.functions.update_function_configuration(FunctionName=name, **settings),
            account.functions.get_waiter("function_updated_v2").wait(FunctionName=name, WaiterConfig={"Delay": 0.2}),
        )

        def gone(name):
            redrive(name, arn(f"{name}-dead"), 1)
            account.sqs.delete_queue(QueueUrl=account.url(f"{name}-dead"))

        def foreign(name):
            """The redrive policy names a queue that another function handles."""
            other = f"{name}-other"
            redrive(name, account.queue(other), 1)
            redrive(other, account.queue(f"{other}-dead"), 5)
            account.function(f"{other}-handler", NO_ROLE, 3)
            account.mapping(f"{other}-handler", arn(other))

        def refused(name):
            redrive(name, arn(f"{name}-dead"), 1)
            attributes(f"{name}-dead", RedriveAllowPolicy='{"redrivePermission": "denyAll"}', MessageRetentionPeriod=str(DAY))

        def powerless(name):
            key = account.kms.create_key()["KeyMetadata"]["Arn"]
            attributes(name, KmsMasterKeyId=key)
            account.kms.disable_key(KeyId=key)
            document = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": POLLER[:3], "Resource": "*"}]})
            account.iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=document)

        def targeted(name):
            account.function(f"{name}-target", NO_ROLE, 100)
            account.functions.put_function_concurrency(FunctionName=f"{name}-target", ReservedConcurrentExecutions=0)
            account.set(name, REQUEUE_TARGET_URL="", REQUEUE_TARGET_FUNCTION=f"{name}-target")
            attributes(name, VisibilityTimeout="30")
            change(name, ScalingConfig={})

        faults = {
            "gone": gone,
            "foreign": foreign,
            "refused": refused,
            "itself": lambda name: redrive(name, arn(name), 1),
            "undeclared": lambda name: attributes(name, RedrivePolicy="", VisibilityTimeout="10", MessageRetentionPeriod="600"),
            "powerless": powerless,
            "paused": lambda name: change(name, Enabled=False, FunctionResponseTypes=[]),
            "crowded": lambda name: (change(name, BatchSize=100, MaximumBatchingWindowInSeconds=1), attributes(name, VisibilityTimeout="61")),
            "targeted": targeted,
            "tableless": lambda name: account.set(name, REQUEUE_TABLE=f"{name}-limits", REQUEUE_POLICY='{"rateLimit": {"limit": 49}}'),
            "stopped": lambda name: account.functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0),
            "loud": lambda name: configure(name, LoggingConfig={"LogFormat": "Text"}),
        }
        alone = [(fault,) for fault in faults]
        for broken in [*alone, ("gone", "paused", "powerless"), ("refused", "crowded", "tableless"), ("undeclared", "targeted", "loud")]:
            name = "mended-" + "-".join(broken)
            with self.subTest(name):
                account.good(name)
                account.allow_loop(name)
                for fault in broken:
                    faults[fault](name)
                seen = []
                for _ in range(4):
                    _, findings, printed = doctor(MINISTACK, "--function", name)
                    # Only a person knows who is to be notified.
                    bad = {place for place in at(findings, "danger") | at(findings, "warning") if not place[1].endswith("alarm")}
                    seen.append(sorted(id for _, id in bad))
                    if not bad:
                        break
                    for finding in findings.values():
                        for remedy in filter(runnable, finding["remedies"][:1]):
                            run(remedy)
                self.assertTrue(seen[0], "nothing was broken")
                self.assertEqual(bad, set(), f"{seen} {printed}")

    def test_the_page_shows_what_is_printed(self):
        name = "shown"
        self.account.good(name)
        self.account.allow_loop(name)
        (mapping,) = self.account.functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
        self.account.functions.update_event_source_mapping(UUID=mapping["UUID"], FunctionResponseTypes=[])
        variables = {"REQUEUE_TARGET_URL": "https://example.com/orders", "REQUEUE_RECURSIVE_LOOP": "Allow", "REQUEUE_DEAD_LETTER": "annotate"}
        self.account.functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
        self.account.functions.get_waiter("function_updated_v2").wait(FunctionName=name, WaiterConfig={"Delay": 0.2})
        self.account.sqs.set_queue_attributes(QueueUrl=self.account.url(name), Attributes={"VisibilityTimeout": "60"})
        command = [COMMAND, "doctor", "--function", name, "--problems-only"]
        done = subprocess.run(command, env={**KEYS, "AWS_ENDPOINT_URL": MINISTACK}, capture_output=True, text=True)
        lines = done.stdout.splitlines()[1:]
        page = (ROOT / "docs/operate/doctor.md").read_text()
        shown = re.search(r"^```text\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[1]
        shown = re.sub("[0-9a-f-]{36}", mapping["UUID"], shown).replace("/orders", f"/{name}")
        # The page shows the commands for AWS.
        printed = "\n".join(lines).replace(f"aws --endpoint-url {MINISTACK} ", "aws ")
        self.assertEqual(printed, shown.rstrip("\n"), done.stdout)

    def test_what_is_not_there_cannot_be_looked_at(self):
        nowhere = "https://sqs.us-east-1.amazonaws.com/000000000000/nowhere-at-all"
        for subject, told in [
            (["--function", "nobody"], "there is no function nobody in us-east-1"),
            (["--function", "nobody:live"], "if a mapping invokes it, the queue's messages wait"),
            (["--queue", nowhere], "there is no queue arn:aws:sqs:us-east-1:000000000000:nowhere-at-all at "),
        ]:
            status, _, printed = doctor(MINISTACK, *subject)
            self.assertEqual(status, 1, printed)
            self.assertIn(told, printed)


class Responder(http.server.BaseHTTPRequestHandler):
    @classmethod
    def serve(cls, test):
        """Serves until the test ends, and returns the endpoint."""
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), cls)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        test.addCleanup(server.server_close)
        test.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    def respond(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Proxy(Responder):
    """Passes requests on to an emulator, except for operations that it denies."""

    # Operations of Lambda, by the path.
    OF_LAMBDA = [
        (r"/configuration$", "GetFunctionConfiguration"),
        (r"/recursion-config$", "GetFunctionRecursionConfig"),
        (r"/concurrency$", "GetFunctionConcurrency"),
        (r"/account-settings$", "GetAccountSettings"),
        (r"/event-source-mappings\?FunctionName=", "ListEventSourceMappings of the function"),
        (r"/event-source-mappings\?EventSourceArn=", "ListEventSourceMappings of a queue"),
    ]

    @classmethod
    def before(cls, test, upstream, replaced=(b"", b"")):
        """A proxy that ends with the test; its endpoint is `endpoint`."""
        handler = type("Handler", (cls,), {"upstream": upstream, "replaced": replaced, "denied": None, "seen": set()})
        handler.endpoint = handler.serve(test)
        return handler

    def operation(self, body):
        target = self.headers.get("X-Amz-Target")
        if target:
            return target.split(".")[-1]
        form = re.match(rb"Action=(\w+)", body)
        if form:
            return form[1].decode()
        return next(name for pattern, name in self.OF_LAMBDA if re.search(pattern, self.path))

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        operation = self.operation(body)
        self.seen.add(operation)
        if operation == self.denied:
            is_xml = body.startswith(b"Action=")
            told = "<Response><Errors><Error><Code>AccessDenied</Code><Message>no</Message></Error></Errors></Response>"
            status, body = 403, told if is_xml else json.dumps({"__type": "AccessDeniedException", "message": "no"})
            return self.respond(status, body.encode())
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "content-length", "accept-encoding")}
        request = urllib.request.Request(self.upstream + self.path, body or None, headers, method=self.command)
        try:
            with urllib.request.urlopen(request) as response:
                self.respond(response.status, response.read())
        except urllib.error.HTTPError as error:
            self.respond(error.code, error.read())

    do_POST = do_GET

    def respond(self, status, body):
        super().respond(status, body.replace(*self.replaced) if self.replaced[0] else body)


class OnMoto(unittest.TestCase):
    def test_what_cannot_be_asked_is_unknown_and_not_ok(self):
        account = Account(MOTO)
        account.good("unasked")
        status, findings, printed = doctor(MOTO, "--function", "unasked")
        self.assertEqual((status, at(findings, "danger")), (0, set()), printed)
        unknown = {
            (None, "recursive-loop"): "lambda:GetFunctionRecursionConfig",
            (None, "concurrency"): "lambda:GetAccountSettings",
            (None, "log-permissions"): "iam:SimulatePrincipalPolicy",
            (None, "secret-permissions"): "iam:SimulatePrincipalPolicy",
            ("unasked", "queue-permissions"): "iam:SimulatePrincipalPolicy",
        }
        self.assertEqual(at(findings, "unknown"), set(unknown), printed)
        for place, permission in unknown.items():
            self.assertIn(permission, findings[place]["found"])
        status, _, printed = doctor(MOTO, "--function", "unasked", "--strict")
        self.assertEqual(status, 3, printed)


    def test_an_alarm_on_an_expression_is_found(self):
        account = Account(MOTO)
        account.good("expressed")
        account.cloudwatch.delete_alarms(AlarmNames=["expressed-ApproximateAgeOfOldestMessage", "expressed-MessageAge"])
        # As in the template.
        oldest = {"Namespace": "AWS/SQS", "Dimensions": [{"Name": "QueueName", "Value": "expressed"}]}
        ids = {"age": {**account.age("expressed"), "MetricName": "MessageAge"}, "waiting": {**oldest, "MetricName": "ApproximateAgeOfOldestMessage"}}
        stats = {id: {"Metric": metric, "Stat": "Maximum", "Period": 900} for id, metric in ids.items()}
        metrics = [{"Id": id, "ReturnData": False, "MetricStat": stat} for id, stat in stats.items()]
        metrics.append({"Id": "oldest", "Expression": "MAX([FILL(age, 0), FILL(waiting, 0)])"})
        age = lambda: doctor(MOTO, "--function", "expressed")[1]["expressed", "age-alarm"]["level"]
        self.assertEqual(age(), "warning")
        account.alarm("expressed", "expression", Metrics=metrics)
        self.assertEqual(age(), "ok")


    def test_a_function_in_a_vpc_needs_copies_that_sqs_confirms(self):
        account = Account(MOTO)
        ec2 = account.ec2
        account.good("walled-in")
        network = lambda: doctor(MOTO, "--function", "walled-in")[1][None, "network"]
        self.assertEqual(network()["found"], "the function is in no VPC, so it reaches SQS")
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
        group = ec2.create_security_group(VpcId=vpc, GroupName="any", Description="any")["GroupId"]
        account.functions.update_function_configuration(FunctionName="walled-in", VpcConfig={"SubnetIds": [subnet], "SecurityGroupIds": [group]})
        found = network()
        self.assertEqual(found["level"], "warning", found)
        account.sent("walled-in", "Requeued")
        found = network()
        self.assertEqual(found["level"], "ok", found)
        account.sent("walled-in", "SendUnconfirmed")
        found = network()
        self.assertEqual(found["level"], "danger", found)
        self.assertIn("--filter-pattern NoConnection", found["remedies"][0])


class StatusOnBoth(unittest.TestCase):
    """`requeue status`, on each emulator."""

    def test_a_function_and_its_queue_are_told_by_sqs_cloudwatch_and_the_log(self):
        for endpoint in (MINISTACK, MOTO):
            account = Account(endpoint)
            account.good("standing")
            account.sqs.send_message(QueueUrl=account.url("standing"), MessageBody="{}", DelaySeconds=600)
            account.sent("standing", "Requeued")
            group, now = "/aws/lambda/standing", int(time.time() * 1000)
            failed = {"messageId": "m", "disposition": "requeue", "class": "temporary", "detail": "status 503"}
            opened = {"event": "circuit-opened", "cause": "status 503"}
            lines = ["START RequestId: 1", json.dumps({"fields": failed}), json.dumps({"fields": opened})]
            account.logs.create_log_stream(logGroupName=group, logStreamName="one")
            account.logs.put_log_events(logGroupName=group, logStreamName="one", logEvents=[{"timestamp": now, "message": line} for line in lines])
            for subject in (["--function", "standing"], ["standing"]):
                with self.subTest(endpoint=endpoint, subject=subject):
                    command = [COMMAND, "status", *subject, "--json"]
                    done = subprocess.run(command, env={**KEYS, "AWS_ENDPOINT_URL": endpoint}, capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertNotIn(SECRET, done.stdout)
                    shown = json.loads(done.stdout)
                    [queue, dead] = shown["queues"]
                    self.assertEqual((queue["delayed"], queue["visible"], dead["visible"]), (1, 0, 0))
                    [function] = shown["functions"]
                    self.assertEqual((function["state"], function["counts"]["Requeued"]), ("Active", 1), done.stdout)
                    self.assertEqual((function["circuit"]["state"], function["circuit"]["cause"]), ("open", "status 503"))
                    self.assertEqual([failure["failure"] for failure in function["failures"]], ["status 503"])
                    # No emulator measures the age of messages.
                    self.assertTrue(all("oldest message" in line for line in shown["unknown"]), shown["unknown"])


class OnDenials(unittest.TestCase):
    """Each permission of the doctor denied alone."""

    # The checks that then are unknown. `None` if the doctor ends without a finding.
    UNKNOWN = {
        "GetFunctionConfiguration": None,
        "ListEventSourceMappings of the function": None,
        "ListEventSourceMappings of a queue": ["other-consumers", "dead-letter-consumers"],
        "GetFunctionRecursionConfig": ["recursive-loop"],
        "GetFunctionConcurrency": ["concurrency"],
        "GetAccountSettings": ["concurrency"],
        "DescribeLogGroups": ["logs", "log-permissions"],
        "FilterLogEvents": ["settings"],
        "DescribeAlarms": ["dead-letter-alarm", "age-alarm"],
        "GetMetricStatistics": ["network"],
        "DescribeSecret": ["secret-permissions"],
        "DescribeParameters": ["secret-permissions"],
        "DescribeTable": ["table"],
        "DescribeTimeToLive": ["table"],
        "DescribeKey": ["secret-permissions", "table-permissions", "key-permissions"],
        "GetKeyPolicy": ["secret-permissions", "table-permissions", "key-permissions"],
        # Without them, the queue's other checks do not apply.
        "GetQueueAttributes": ["queue", "queue-permissions"],
        "SimulatePrincipalPolicy": [
            *("log-permissions", "secret-permissions"),
            *("table-permissions", "queue-permissions", "key-permissions"),
        ],
    }

    @staticmethod
    def deploy(name):
        """A deployment for which the doctor needs every permission."""
        account = Account(MINISTACK)
        account.good(name)
        account.allow_loop(name)
        key = account.kms.create_key()["KeyMetadata"]["Arn"]
        account.sqs.set_queue_attributes(QueueUrl=account.url(name), Attributes={"KmsMasterKeyId": key})
        secret = account.secrets.create_secret(Name=f"{name}-keyed", SecretString="{}", KmsKeyId=key)["ARN"]
        account.ssm.put_parameter(Name=f"/{name}/signing", Type="SecureString", KeyId=key, Value="any")
        parameter = account.ssm.get_parameter(Name=f"/{name}/signing")["Parameter"]["ARN"]
        table = account.table(name, SSESpecification={"Enabled": True, "SSEType": "KMS", "KMSMasterKeyId": key})
        account.expire(name)
        statements = [
            {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": key},
            {"Effect": "Allow", "Action": "secretsmanager:GetSecretValue", "Resource": secret},
            {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": parameter},
            {"Effect": "Allow", "Action": ["dynamodb:GetItem", "dynamodb:UpdateItem"], "Resource": table},
        ]
        document = json.dumps({"Version": "2012-10-17", "Statement": statements})
        account.iam.put_role_policy(RoleName=name, PolicyName="keyed", PolicyDocument=document)
        role = account.iam.get_role(RoleName=name)["Role"]["Arn"]
        statement = {"Effect": "Allow", "Principal": {"AWS": role}, "Action": "kms:*", "Resource": "*"}
        account.kms.put_key_policy(KeyId=key, PolicyName="default", Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
        ec2 = account.ec2
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
        group = ec2.create_security_group(VpcId=vpc, GroupName="any", Description="any")["GroupId"]
        variables = account.functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
        variables["REQUEUE_SIGNING_SECRET"] = f"{secret} {parameter}"
        variables["REQUEUE_TABLE"] = name
        network = {"SubnetIds": [subnet], "SecurityGroupIds": [group]}
        account.functions.update_function_configuration(FunctionName=name, VpcConfig=network, Environment={"Variables": variables})
        account.functions.get_waiter("function_updated_v2").wait(FunctionName=name, WaiterConfig={"Delay": 0.2})
        account.sent(name, "Requeued")
        versions = [account.functions.publish_version(FunctionName=name, Description=str(n))["Version"] for n in range(2)]
        routing = {"AdditionalVersionWeights": {versions[1]: 0.5}}
        account.functions.create_alias(FunctionName=name, Name="live", FunctionVersion=versions[0], RoutingConfig=routing)
        (mapping,) = account.functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
        account.functions.delete_event_source_mapping(UUID=mapping["UUID"])
        account.mapping(
            f"{name}:live",
            account.attributes(name)["QueueArn"],
            FunctionResponseTypes=["ReportBatchItemFailures"],
            ScalingConfig={"MaximumConcurrency": 10},
        )

    def test_no_check_is_ok_about_what_it_may_not_see(self):
        self.deploy("every")
        proxy = Proxy.before(self, MINISTACK)
        status, findings, printed = doctor(proxy.endpoint, "--function", "every:live", "--strict")
        self.assertEqual(status, 0, printed)
        self.assertEqual(proxy.seen, set(self.UNKNOWN))
        ok = at(findings, "ok")
        for operation, unknown in self.UNKNOWN.items():
            proxy.denied = operation
            status, findings, printed = doctor(proxy.endpoint, "--function", "every:live")
            permission = f":{operation.split()[0]}"
            with self.subTest(operation):
                if unknown is None:
                    self.assertEqual((status, findings), (1, {}), printed)
                    self.assertIn(permission, printed)
                    continue
                self.assertEqual(sorted(id for _, id in at(findings, "unknown")), sorted(unknown), printed)
                for place in at(findings, "unknown"):
                    self.assertIn(permission, findings[place]["found"])
                self.assertLessEqual(at(findings, "ok"), ok)
                self.assertEqual(at(findings, "danger") | at(findings, "warning"), set(), printed)


class Refusing(Responder):
    """An AWS that shows one function, and refuses all the rest."""

    MAPPING = {
        "UUID": "4e1f",
        "EventSourceArn": "arn:aws:sqs:us-east-1:123456789012:hidden",
        "FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:hidden",
        "State": "Enabled",
        "KMSKeyArn": "arn:aws:kms:us-east-1:123456789012:key/1",
    }
    # The response to GetEventSourceMapping.
    whole = None

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/2015-03-31/functions/hidden/configuration":
            role = "arn:aws:iam::123456789012:role/hidden"
            self.respond(200, {"FunctionName": "hidden", "Role": role, "VpcConfig": {"VpcId": "vpc-1", "SubnetIds": ["subnet-1"]}})
        elif path == "/2015-03-31/event-source-mappings":
            self.respond(200, {"EventSourceMappings": [self.MAPPING] if "FunctionName" in self.path else []})
        elif path == "/2015-03-31/event-source-mappings/4e1f" and self.whole:
            self.respond(200, {**self.MAPPING, **self.whole})
        else:
            self.respond(403, {"__type": "AccessDeniedException", "message": "no"})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.respond(403, {"__type": "AccessDeniedException", "message": "no"})

    def respond(self, status, body):
        super().respond(status, json.dumps(body).encode())


class OnRefusals(unittest.TestCase):
    def setUp(self):
        self.endpoint = Refusing.serve(self)
        self.addCleanup(setattr, Refusing, "whole", None)

    def test_what_is_refused_is_unknown_and_not_ok(self):
        status, findings, printed = doctor(self.endpoint, "--function", "hidden")
        # Without a mapping's ReportBatchItemFailures, the function is in danger.
        self.assertEqual(status, 3, printed)
        of_function = ["settings", "function-state", "network", "recursive-loop", "concurrency", "log-permissions"]
        of_queue = ["filters", "queue", "queue-permissions", "age-alarm"]
        unknown = {(None, id) for id in of_function} | {("hidden", id) for id in of_queue}
        self.assertEqual(at(findings, "unknown"), unknown, printed)
        self.assertIn("lambda:GetEventSourceMapping on 4e1f was refused", findings["hidden", "filters"]["found"])

    def test_filters_that_a_key_encrypts_are_seen_if_they_may_be(self):
        pattern = json.dumps({"body": {"retryCount": [1]}})
        for whole, level, found in [
            ({"FilterCriteria": {"Filters": [{"Pattern": pattern}]}}, "danger", "a filter names retryCount"),
            ({"FilterCriteriaError": {"ErrorCode": "DecryptAccessDenied"}}, "unknown", "kms:Decrypt"),
            ({"FilterCriteria": None}, "ok", "no filter"),
        ]:
            Refusing.whole = whole
            finding = doctor(self.endpoint, "--function", "hidden")[1]["hidden", "filters"]
            self.assertEqual(finding["level"], level, finding)
            self.assertIn(found, finding["found"])


if __name__ == "__main__":
    if not MINISTACK or not MOTO:
        sys.exit("REQUEUE_TEST_MINISTACK and REQUEUE_TEST_MOTO are not set; run `tests/run doctor`")
    build_for_tests()
    unittest.main()
