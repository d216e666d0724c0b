"""The stack in the CloudFormation of two emulators: queues, redrive policy, mapping, role, and a topic that feeds the queue.

Needs $REQUEUE_TEST_MOTO and $REQUEUE_TEST_MINISTACK (endpoint URLs). `tests/run template` provides them.
"""

import io
import json
import os
import unittest
import uuid
import zipfile

import boto3
from stack import cloudformation, made

MOTO = os.environ.get("REQUEUE_TEST_MOTO", "")
MINISTACK = os.environ.get("REQUEUE_TEST_MINISTACK", "")
DAY = 86_400


class Emulator:
    """An account for each test class. Its stacks have no alarms and no dashboard, since both emulators support too little of them."""

    def __init__(self, endpoint):
        self.endpoint = endpoint
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("bootstrap", "#!/bin/sh\n")
        # The place of the function's code in the translated template.
        self.client("s3").create_bucket(Bucket="bucket")
        self.client("s3").put_object(Bucket="bucket", Key="key", Body=data.getvalue())

    def client(self, service):
        credentials = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
        return boto3.client(service, endpoint_url=self.endpoint, region_name="us-east-1", **credentials)

    def create(self, template, **given):
        """Makes a stack, and returns its name and outputs."""
        name = f"stack-{uuid.uuid4().hex[:8]}"
        parameters = [{"ParameterKey": key, "ParameterValue": str(value)} for key, value in given.items()]
        # In a bucket, as SAM does, since a request may have 51,200 bytes of template. The emulators read
        # this address from their own bucket.
        self.client("s3").put_object(Bucket="bucket", Key="template", Body=json.dumps(template))
        place = "https://s3.us-east-1.amazonaws.com/bucket/template"
        cloudformation = self.client("cloudformation")
        cloudformation.create_stack(StackName=name, TemplateURL=place, Parameters=parameters, Capabilities=["CAPABILITY_IAM"])
        cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        return name, {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", [])}

    def attributes(self, url):
        found = self.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        return {name: json.loads(value) if name.endswith("Policy") else value for name, value in found.items()}


GIVEN = {"TargetUrl": "https://api.example.com/orders", "Monitoring": "none"}


@unittest.skipUnless(MOTO, "REQUEUE_TEST_MOTO is not set; run `tests/run template`")
class Created(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.moto = Emulator(MOTO)
        given = {**GIVEN, "MaxReceiveCount": 7, "FunctionTimeout": 30, "BatchSize": 5, "MaximumConcurrency": 4}
        # With the conditions evaluated, since this emulator leaves a hole in a list for AWS::NoValue.
        template = {section: made(cloudformation(), section, **given) for section in ("Resources", "Outputs")}
        cls.name, cls.outputs = cls.moto.create(template)

    def test_fifo_queues_are_made_and_redrive_to_each_other(self):
        given = {**GIVEN, "Fifo": "true", "DeadLetterMode": "direct"}
        _, outputs = self.moto.create({section: made(cloudformation(), section, **given) for section in ("Resources", "Outputs")})
        queue, dead_letters = (self.moto.attributes(outputs[name]) for name in ("QueueUrl", "DeadLetterQueueUrl"))
        self.assertEqual((queue["FifoQueue"], dead_letters["FifoQueue"]), ("true", "true"))
        self.assertEqual(queue["RedrivePolicy"]["deadLetterTargetArn"], outputs["DeadLetterQueueArn"])
        self.assertTrue(outputs["QueueUrl"].endswith("-messages.fifo"), outputs)

    def test_messages_go_from_the_queue_to_its_dead_letter_queue(self):
        queue, dead_letters = (self.moto.attributes(self.outputs[name]) for name in ("QueueUrl", "DeadLetterQueueUrl"))
        self.assertEqual(queue["RedrivePolicy"], {"deadLetterTargetArn": self.outputs["DeadLetterQueueArn"], "maxReceiveCount": 7})
        self.assertEqual((queue["QueueArn"], dead_letters["QueueArn"]), (self.outputs["QueueArn"], self.outputs["DeadLetterQueueArn"]))
        self.assertEqual((queue["VisibilityTimeout"], queue["MessageRetentionPeriod"]), ("200", str(7 * DAY)))
        self.assertEqual(dead_letters["MessageRetentionPeriod"], str(14 * DAY))

    def test_the_mapping_hands_the_queues_messages_to_the_function(self):
        (mapping,) = self.moto.client("lambda").list_event_source_mappings(EventSourceArn=self.outputs["QueueArn"])["EventSourceMappings"]
        self.assertEqual(mapping["FunctionArn"], self.outputs["FunctionArn"])
        self.assertEqual(mapping["FunctionResponseTypes"], ["ReportBatchItemFailures"])
        self.assertEqual(int(mapping["BatchSize"]), 5)
        self.assertEqual(int(mapping["ScalingConfig"]["MaximumConcurrency"]), 4)

    def test_the_function_has_its_role_and_settings(self):
        function = self.moto.client("lambda").get_function_configuration(FunctionName=self.outputs["FunctionName"])
        self.assertEqual(function["Environment"]["Variables"]["REQUEUE_TARGET_URL"], "https://api.example.com/orders")
        role = function["Role"].split("/")[-1]
        names = self.moto.client("iam").list_role_policies(RoleName=role)["PolicyNames"]
        self.assertEqual(sorted(names), ["Logs", "Queue"])
        policy = self.moto.client("iam").get_role_policy(RoleName=role, PolicyName="Queue")["PolicyDocument"]
        # The emulator has a text instead of the document.
        self.assertIn(f"'Resource': '{self.outputs['QueueArn']}'", str(policy))

    def test_the_function_may_invoke_its_target_and_no_other_version_of_it(self):
        given = {**GIVEN, "TargetUrl": "", "TargetFunction": "charge:live"}
        _, outputs = self.moto.create({section: made(cloudformation(), section, **given) for section in ("Resources", "Outputs")})
        function = self.moto.client("lambda").get_function_configuration(FunctionName=outputs["FunctionName"])
        self.assertEqual(function["Environment"]["Variables"]["REQUEUE_TARGET_FUNCTION"], "charge:live")
        role = function["Role"].split("/")[-1]
        policy = self.moto.client("iam").get_role_policy(RoleName=role, PolicyName="TargetFunction")["PolicyDocument"]
        # The emulator has a text instead of the document.
        self.assertIn("'Resource': 'arn:aws:lambda:us-east-1:123456789012:function:charge:live'", str(policy))

    def test_the_table_is_made_as_the_function_needs_it(self):
        given = {**GIVEN, "SharedTable": "dynamodb"}
        _, outputs = self.moto.create({section: made(cloudformation(), section, **given) for section in ("Resources", "Outputs")})
        dynamodb, name = self.moto.client("dynamodb"), outputs["TableName"]
        table = dynamodb.describe_table(TableName=name)["Table"]
        self.assertEqual(table["KeySchema"], [{"AttributeName": "id", "KeyType": "HASH"}])
        self.assertEqual(table["BillingModeSummary"]["BillingMode"], "PAY_PER_REQUEST")
        function = self.moto.client("lambda").get_function_configuration(FunctionName=outputs["FunctionName"])
        self.assertEqual(function["Environment"]["Variables"]["REQUEUE_TABLE"], name)

    def test_the_outputs_are_exported(self):
        exports = {export["Name"]: export["Value"] for export in self.moto.client("cloudformation").list_exports()["Exports"]}
        for name in ("QueueUrl", "QueueArn", "DeadLetterQueueUrl", "DeadLetterQueueArn"):
            self.assertEqual(exports[f"{self.name}-{name}"], self.outputs[name])


@unittest.skipUnless(MINISTACK, "REQUEUE_TEST_MINISTACK is not set; run `tests/run template`")
class Fed(unittest.TestCase):
    def test_a_topic_feeds_the_queue_with_the_operations_asked_for(self):
        ministack = Emulator(MINISTACK)
        sns, sqs = ministack.client("sns"), ministack.client("sqs")
        topic = sns.create_topic(Name="orders")["TopicArn"]
        _, outputs = ministack.create(cloudformation(), **GIVEN, TopicArn=topic, TopicOperations="create,update")
        self.quiet(ministack.client("lambda"), outputs["QueueArn"])
        for number, operation in enumerate(["create", "delete"]):
            attribute = {"operation": {"DataType": "String", "StringValue": operation}}
            sns.publish(TopicArn=topic, Message=json.dumps({"number": number}), MessageAttributes=attribute)
        arrived = sqs.receive_message(QueueUrl=outputs["QueueUrl"], MaxNumberOfMessages=10, MessageAttributeNames=["All"], WaitTimeSeconds=5)
        (message,) = arrived["Messages"]
        self.assertEqual(message["Body"], '{"number": 0}')
        self.assertEqual(message["MessageAttributes"]["operation"]["StringValue"], "create")

    def quiet(self, client, queue):
        """Stops the emulator's poller, which would take the messages."""
        (mapping,) = client.list_event_source_mappings(EventSourceArn=queue)["EventSourceMappings"]
        client.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
