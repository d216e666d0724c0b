#!/usr/bin/env python3
"""The trial of `docs/start/existing-function.md`: bash runs its commands on an emulator, beside an existing function in Python.

Needs $REQUEUE_TEST_MINISTACK (endpoint URL), the AWS CLI beside this Python, sam on the PATH, jq, and the build of
`deployed_test.py`. `tests/run deployed` provides all of it.
"""

import io
import os
import re
import sys
import unittest
import zipfile
from pathlib import Path

import boto3

from deployed_test import BUILD, ENDPOINT, ROOT, wait_for
from migration_page_test import blocks, run_commands

PAGE = ROOT / "docs" / "start" / "existing-function.md"
REGION, STACK, TARGET = "eu-west-1", "orders-retries", "charge"

# What the page asks of the function: fields of failed items, and the trial's lines.
CHARGE = """\
import os
def handler(event, context):
    failed = []
    for record in event["Records"]:
        body, item = record["body"], {"itemIdentifier": record["messageId"]}
        if body == "trial-busy": failed.append({**item, "class": "rate-limit", "delaySeconds": 5, "reason": "bank-busy"})
        if body == "trial-invalid": failed.append({**item, "class": "non-retryable", "reason": "invalid-order"})
        if body == "trial-exit": os._exit(1)
    return {"batchItemFailures": failed}
"""

# `sam build` has built the application, and the emulator does not support alarms on expressions.
SAM = f"""sam() {{ command sam "$1" --template "{BUILD}/template.yaml" --config-file "{ROOT}/samconfig.toml" "${{@:2}}" Monitoring=none; }}
"""


class Trial(unittest.TestCase):
    def test_a_standard_queue_shows_a_retry_an_isolated_message_and_a_dead_letter(self):
        self.trial("")

    def test_a_fifo_queue_shows_a_retry_an_isolated_message_and_a_dead_letter(self):
        self.trial(".fifo")

    def trial(self, ending):
        client = lambda service: boto3.client(
            service, endpoint_url=ENDPOINT, region_name=REGION, aws_access_key_id="test", aws_secret_access_key="test"
        )
        sqs, functions = client("sqs"), client("lambda")
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("charge.py", CHARGE)
        functions.create_function(
            FunctionName=TARGET,
            Runtime="python3.11",
            Handler="charge.handler",
            Role="arn:aws:iam::000000000000:role/charge",
            Code={"ZipFile": code.getvalue()},
            Timeout=40,
        )
        self.addCleanup(functions.delete_function, FunctionName=TARGET)
        old = sqs.create_queue(QueueName="orders")["QueueUrl"]
        self.addCleanup(sqs.delete_queue, QueueUrl=old)
        mapping = functions.create_event_source_mapping(
            FunctionName=TARGET, EventSourceArn=f"arn:aws:sqs:{REGION}:000000000000:orders", FunctionResponseTypes=["ReportBatchItemFailures"]
        )
        self.addCleanup(functions.delete_event_source_mapping, UUID=mapping["UUID"])
        tools, mapping_of, standard, fifo, deploy, queues, send, look, back = blocks(PAGE, "## Try it beside your mapping")
        self.assertIn("sam build\n", tools)

        names = tools.splitlines(keepends=True)[0]
        self.assertIn("ReportBatchItemFailures", run_commands(names, mapping_of))
        run_commands(SAM, names, fifo if ending else standard, deploy)
        (function,) = (one for one in functions.list_functions()["Functions"] if one["FunctionName"].startswith(STACK))
        self.assertEqual(function["Timeout"], 60)
        name = function["FunctionName"]
        # As in deployed_test.py: the emulator gives the mapping texts where AWS gives it numbers, and drops RecursiveLoop. It
        # drops the format of the log too, and below ignores the filter.
        variables = {**function["Environment"]["Variables"], "AWS_LAMBDA_LOG_FORMAT": "JSON"}
        functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
        (mapping,) = functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
        window = {} if ending else {"MaximumBatchingWindowInSeconds": 5}
        functions.update_event_source_mapping(UUID=mapping["UUID"], BatchSize=10, ScalingConfig={"MaximumConcurrency": 2}, **window)
        functions.put_function_recursion_config(FunctionName=name, RecursiveLoop="Allow")
        names += f"FIFO={ending}\n"
        shown = run_commands(names, queues)
        self.assertRegex(shown, rf"(?m)^function +{name}")
        self.assertNotRegex(shown, r"(?m)^danger")

        names += queues.replace("requeue doctor", ":")
        sent = dict(reversed(line.split()) for line in run_commands(names, send).splitlines())
        dead = sqs.get_queue_url(QueueName=f"{STACK}-dead-letters{ending}")["QueueUrl"]
        count = lambda: sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["All"])["Attributes"]["ApproximateNumberOfMessages"]
        wait_for("two dead letters", lambda: count() == "2", seconds=180)
        self.assertIn("--output text |", look)
        shown = run_commands(names, look.replace("--output text |", "--output text | tr '\\t' '\\n' | grep '\"message\":\"message\"' |"))
        for body, line in [
            # Once it is alone in a call.
            ("trial-exit", "requeue\ttemporary\t"),
            ("trial-exit", "dead-letter\tretries-exhausted"),
            ("trial-invalid", "dead-letter\tnon-retryable"),
            ("trial-busy", "requeue\trate-limit\t"),
        ]:
            self.assertIn(f"{sent[body]}\t{line}", shown)
        self.assertIn("invalid-order", shown)

        (redrive,) = re.findall(r"`(requeue dlq redrive [^`]*)`", PAGE.read_text())
        # The emulator does not know ListDeadLetterSourceQueues.
        self.assertIn("2 messages copied", run_commands(names, f'{redrive} --to "$TRIAL" --yes\n'))
        run_commands(names, back.replace("sam delete", "command sam delete"))
        with self.assertRaises(functions.exceptions.ResourceNotFoundException):
            functions.get_function_configuration(FunctionName=name)
        (mapping,) = functions.list_event_source_mappings(FunctionName=TARGET)["EventSourceMappings"]
        self.assertEqual(mapping["State"], "Enabled")


if __name__ == "__main__":
    if not ENDPOINT:
        sys.exit("REQUEUE_TEST_MINISTACK is not set; run `tests/run deployed`")
    unittest.main()
