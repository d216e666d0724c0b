"""The properties of the queues, the mapping and the function in the template."""

import itertools
import re
import tomllib
import unittest

from aws_lambda_builders.workflows.rust_cargo.actions import RustCargoLambdaBuildAction
from stack import GROUP, KEY, ROOT, SUBNETS, TOPIC, cloudformation, deployed, lint, made, template, translated

DAY = 86_400


class Cargo:
    """The program that SAM found."""

    binary_path = "cargo"


class Queues(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.source = template()
        cls.parameters = cls.source["Parameters"]
        cls.translated = cloudformation()

    def properties(self, name, **given):
        """The properties of a resource with these parameters."""
        return deployed(self.translated, **given)[name]["Properties"]

    def mapping(self, **given):
        return self.properties("FunctionMessages", **given)

    def test_visibility_is_six_function_timeouts_and_room_for_the_window(self):
        longest = self.parameters["BatchingWindow"]["MaxValue"]
        for timeout in self.parameters["FunctionTimeout"]["AllowedValues"]:
            for window in range(longest + 1):
                visibility = self.properties("Queue", FunctionTimeout=timeout, BatchingWindow=window)["VisibilityTimeout"]
                self.assertEqual(visibility, 6 * int(timeout) + (20 if window <= 20 else longest), (timeout, window))
            self.assertLessEqual(visibility, 43_200)
            self.assertEqual(self.properties("Function", FunctionTimeout=timeout)["Timeout"], timeout)
        self.assertEqual(self.mapping(BatchingWindow=7)["MaximumBatchingWindowInSeconds"], 7)

    def test_the_page_lowers_the_timeout_in_steps_that_outlast_running_batches(self):
        (steps,) = re.findall(r"each to at least a sixth, for example ([\d, ]+)\.", (ROOT / "docs/operate/upgrade.md").read_text())
        steps = steps.split(", ")
        for before, after in itertools.pairwise(steps):
            self.assertGreaterEqual(6 * int(after), int(before))
            # The function may still have the timeout of before.
            self.assertGreaterEqual(self.properties("Queue", FunctionTimeout=after)["VisibilityTimeout"], int(before))
        self.assertEqual((steps[0], len(steps)), (self.parameters["FunctionTimeout"]["AllowedValues"][-1], 3))

    def test_a_fifo_queue_has_no_window(self):
        self.assertEqual(self.mapping()["MaximumBatchingWindowInSeconds"], 0)
        self.assertNotIn("MaximumBatchingWindowInSeconds", self.mapping(Fifo="true"))

    def test_with_a_table_lambda_gathers_for_a_second_at_least(self):
        for given, window in [(0, 1), (1, 1), (2, 2)]:
            self.assertEqual(self.mapping(SharedTable="dynamodb", BatchingWindow=given)["MaximumBatchingWindowInSeconds"], window)
        self.assertNotIn("MaximumBatchingWindowInSeconds", self.mapping(SharedTable="dynamodb", Fifo="true"))

    def test_the_table_has_one_key_and_its_items_expire(self):
        self.assertNotIn("Table", deployed(self.translated))
        self.assertNotIn("TableName", made(self.translated, "Outputs"))
        table = self.properties("Table", SharedTable="dynamodb")
        self.assertEqual(table, {
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
            "TimeToLiveSpecification": {"AttributeName": "expires", "Enabled": True},
        })
        encrypted = self.properties("Table", SharedTable="dynamodb", KmsKeyArn=KEY)
        self.assertEqual(encrypted, {**table, "SSESpecification": {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}})

    def test_only_failed_messages_come_back(self):
        self.assertEqual(self.mapping()["FunctionResponseTypes"], ["ReportBatchItemFailures"])

    def test_the_mapping_is_bounded(self):
        self.assertEqual(self.mapping(MaximumConcurrency=7)["ScalingConfig"], {"MaximumConcurrency": 7})
        self.assertGreaterEqual(self.parameters["MaximumConcurrency"]["MinValue"], 2)
        self.assertEqual(self.mapping(BatchSize=7)["BatchSize"], 7)
        self.assertLessEqual(self.parameters["BatchSize"]["Default"], 10)

    def test_reserved_concurrency_is_that_of_the_mapping(self):
        self.assertNotIn("ReservedConcurrentExecutions", self.properties("Function"))
        given = {"ReserveConcurrency": "true", "MaximumConcurrency": 7}
        self.assertEqual(self.properties("Function", **given)["ReservedConcurrentExecutions"], 7)
        self.assertEqual(self.mapping(**given)["ScalingConfig"], {"MaximumConcurrency": 7})
        self.assertEqual(self.properties("Function", **given, MaximumPollers=20)["ReservedConcurrentExecutions"], "200")

    def test_the_provisioned_mode_takes_the_place_of_the_maximum_concurrency(self):
        self.assertNotIn("ProvisionedPollerConfig", self.mapping())
        mapping = self.mapping(MaximumPollers=10000, MinimumPollers=200)
        self.assertEqual(mapping["ProvisionedPollerConfig"], {"MinimumPollers": 200, "MaximumPollers": 10000})
        self.assertNotIn("ScalingConfig", mapping)

    def test_the_function_is_in_a_vpc_where_subnets_are_given(self):
        self.assertNotIn("VpcConfig", self.properties("Function"))
        found = self.properties("Function", SubnetIds=SUBNETS, SecurityGroupIds=GROUP)["VpcConfig"]
        self.assertEqual(found, {"SubnetIds": SUBNETS.split(","), "SecurityGroupIds": [GROUP]})

    def test_a_loop_through_the_own_queue_is_allowed_and_said_to_the_function(self):
        function = self.properties("Function")
        self.assertEqual(function["RecursiveLoop"], "Allow")
        self.assertEqual(function["Environment"]["Variables"]["REQUEUE_RECURSIVE_LOOP"], "Allow")

    def test_messages_are_kept_for_the_retention_period_and_dead_letters_for_two_weeks(self):
        self.assertEqual(self.properties("Queue", MessageRetentionPeriod=259200)["MessageRetentionPeriod"], 259200)
        self.assertEqual(self.properties("DeadLetterQueue")["MessageRetentionPeriod"], 14 * DAY)

    def test_queues_and_table_outlive_their_stack_but_not_a_creation_that_failed(self):
        for name in ("Queue", "DeadLetterQueue", "Table"):
            queue = self.translated["Resources"][name]
            self.assertEqual((queue["DeletionPolicy"], queue["UpdateReplacePolicy"]), ("RetainExceptOnCreate", "Retain"))

    def test_messages_are_dead_lettered_after_max_receive_count(self):
        expected = {"deadLetterTargetArn": {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}, "maxReceiveCount": 7}
        self.assertEqual(self.properties("Queue", MaxReceiveCount=7)["RedrivePolicy"], expected)
        self.assertEqual(self.parameters["MaxReceiveCount"]["Default"], 5)

    def test_the_dead_letter_queue_serves_this_queue_only(self):
        for given in [{}, {"Fifo": "true"}]:
            self.serves_this_queue_only(given)

    def serves_this_queue_only(self, given):
        allowed = self.properties("DeadLetterQueue", **given)["RedriveAllowPolicy"]
        self.assertEqual(allowed["redrivePermission"], "byQueue")
        (source,) = allowed["sourceQueueArns"]
        text, values = source["Fn::Sub"]
        self.assertTrue(text.replace("${Suffix}", values["Suffix"]).endswith(":" + self.properties("Queue", **given)["QueueName"]["Fn::Sub"]))

    def test_both_queues_are_fifo_queues_or_neither(self):
        for given, suffix, kind in [({}, "", None), ({"Fifo": "true"}, ".fifo", True)]:
            for queue, name in [("Queue", "messages"), ("DeadLetterQueue", "dead-letters")]:
                properties = self.properties(queue, **given)
                self.assertEqual(properties["QueueName"], {"Fn::Sub": f"${{AWS::StackName}}-{name}{suffix}"})
                self.assertEqual(properties.get("FifoQueue"), kind)
        made = {"Resources": deployed(self.translated, TargetUrl="https://api.example.com/orders", Fifo="true")}
        self.assertEqual(lint(made), "")

    def test_the_page_says_how_long_the_name_of_a_stack_may_be(self):
        # SQS allows 80 characters.
        longest = {}
        for given in ({}, {"Fifo": "true"}):
            names = [self.properties(name, **given)["QueueName"]["Fn::Sub"] for name in ("Queue", "DeadLetterQueue")]
            longest[given.get("Fifo", "false")] = 80 - max(len(name.removeprefix("${AWS::StackName}")) for name in names)
        text = f"most {longest['false']} characters, or {longest['true']} with `Fifo`"
        self.assertIn(text, (ROOT / "docs/operate/deploy.md").read_text())

    def test_both_queues_are_encrypted_with_one_kind_of_key(self):
        for queue in ("Queue", "DeadLetterQueue"):
            for given, expected in [({}, {"SqsManagedSseEnabled": True}), ({"KmsKeyArn": KEY}, {"KmsMasterKeyId": KEY})]:
                properties = self.properties(queue, **given)
                found = {name: value for name, value in properties.items() if name in ("SqsManagedSseEnabled", "KmsMasterKeyId")}
                self.assertEqual(found, expected, queue)

    def test_without_a_topic_nothing_but_iam_lets_anybody_send(self):
        kinds = {resource["Type"] for resource in deployed(self.translated).values()}
        self.assertEqual(kinds & {"AWS::SQS::QueuePolicy", "AWS::SNS::Subscription"}, set())

    def test_only_the_topic_may_send_and_to_each_queue_by_a_policy_of_its_own(self):
        for name, queue in [("QueuePolicy", "Queue"), ("DeadLetterQueuePolicy", "DeadLetterQueue")]:
            policy = self.properties(name, TopicArn=TOPIC)
            self.assertEqual(policy["Queues"], [{"Ref": queue}])
            (statement,) = policy["PolicyDocument"]["Statement"]
            expected = {
                "Effect": "Allow",
                "Principal": {"Service": "sns.amazonaws.com"},
                "Action": "sqs:SendMessage",
                "Resource": {"Fn::GetAtt": [queue, "Arn"]},
                "Condition": {"ArnEquals": {"aws:SourceArn": TOPIC}},
            }
            self.assertEqual(statement, expected)

    def test_messages_of_the_topic_arrive_as_they_were_published(self):
        subscription = deployed(self.translated, TopicArn=TOPIC)["TopicSubscription"]
        expected = {
            "TopicArn": TOPIC,
            "Protocol": "sqs",
            "Endpoint": {"Fn::GetAtt": ["Queue", "Arn"]},
            "RawMessageDelivery": True,
            "RedrivePolicy": {"deadLetterTargetArn": {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}},
        }
        self.assertEqual(subscription["Properties"], expected)
        self.assertEqual(set(subscription["DependsOn"]), {"QueuePolicy", "DeadLetterQueuePolicy"})

    def test_the_topic_may_be_filtered_by_operation(self):
        subscription = self.properties("TopicSubscription", TopicArn=TOPIC, TopicOperations="create,update")
        self.assertEqual(subscription["FilterPolicy"], {"operation": ["create", "update"]})

    def test_the_function_is_the_packaged_binary_on_its_own_runtime(self):
        metadata = self.source["Resources"]["Function"]["Metadata"]
        self.assertEqual(metadata["BuildProperties"]["Binary"], "requeue-lambda")
        self.assertTrue((ROOT / "crates" / "requeue-lambda" / "src" / "main.rs").exists())
        self.assertEqual(self.properties("Function")["Runtime"], "provided.al2023")

    def test_sam_compiles_for_the_architecture_that_it_deploys(self):
        # A literal, since a parameter has a value in `sam build` and another one in `sam deploy`.
        (architecture,) = self.source["Resources"]["Function"]["Properties"]["Architectures"]
        self.assertEqual(self.properties("Function")["Architectures"], [architecture])
        for name, options in [("arm64", ["--arm64"]), ("x86_64", [])]:
            build = RustCargoLambdaBuildAction(".", {"cargo": Cargo}, None, None, "provided.al2023", name, "requeue-lambda")
            command = ["cargo", "lambda", "build", "--release", *options, "--bin", "requeue-lambda"]
            self.assertEqual(build.build_command(), command)
        self.assertEqual(architecture, "arm64")

    def test_sam_deploys_with_a_bucket(self):
        config = tomllib.loads((ROOT / "samconfig.toml").read_text())
        self.assertEqual(config, {"version": 0.1, "default": {"deploy": {"parameters": {
            "resolve_s3": True, "capabilities": "CAPABILITY_IAM", "confirm_changeset": True}}}})

    def test_log_lines_are_json_and_kept_for_a_time(self):
        logging = self.properties("Function")["LoggingConfig"]
        self.assertEqual((logging["LogFormat"], logging["LogGroup"]), ("JSON", {"Ref": "LogGroup"}))
        # At WARN, Lambda writes the reports of invocations and starts that failed.
        self.assertEqual((logging["ApplicationLogLevel"], logging["SystemLogLevel"]), ("INFO", "WARN"))
        self.assertEqual(self.properties("LogGroup", LogRetentionDays=7)["RetentionInDays"], 7)
