#!/usr/bin/env python3
"""The files of a release: `infra/release/build` packs the function that `sam build` built, and the real
`sam deploy` deploys its bundle on an emulator. Nothing is compiled.

Needs $REQUEUE_TEST_MINISTACK (endpoint URL), the build of `deployed_test.py`, and sam on the PATH.
`tests/run deployed` provides them.
"""

import hashlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
import zipfile
from pathlib import Path
from unittest.mock import Mock

from botocore.validate import ParamValidator
from samcli.vendor.serverlessrepo import publish_application
from samcli.yamlhelper import yaml_parse

from deployed_test import ARCHITECTURE, BUILD, ENDPOINT, ROOT, Queue, Target, aws, order, wait_for

TOOLS = Path(os.environ.get("REQUEUE_TEST_TOOLS", ROOT / "target" / "tools"))
BOOTSTRAP = BUILD / "Function" / "bootstrap"
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
FILES = {
    f"requeue-lambda-{VERSION}-{ARCHITECTURE}.zip",
    f"requeue-lambda-{VERSION}-{ARCHITECTURE}.cdx.json",
    f"requeue-deploy-{VERSION}-{ARCHITECTURE}.zip",
}
APPLICATION = "AWS::ServerlessRepo::Application"
# `sam build` links the glibc of this machine, which may be later than Lambda's.
GLIBC = max("2.34", os.confstr("CS_GNU_LIBC_VERSION").split()[1], key=lambda version: [int(part) for part in version.split(".")])


def program():
    """infra/release/release.py as a module, for its parts that need no other packages."""
    directory = ROOT / "infra" / "release"
    sys.path.insert(0, str(directory))
    spec = importlib.util.spec_from_file_location("release", directory / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = program()


def build(*words, **options):
    return subprocess.Popen([ROOT / "infra" / "release" / "build", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def build_lambda(out, processor=ARCHITECTURE, glibc=GLIBC):
    return build("--out", out, "lambda", processor, "--bootstrap", BOOTSTRAP, "--glibc", glibc)


def done(process):
    shown, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(shown)
    return shown


def setUpModule():
    """Packs the function twice, at the same time."""
    global out, again, shown
    directory = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(directory.cleanup)
    out, again = Path(directory.name, "files"), Path(directory.name, "again")
    both = [build_lambda(out), build_lambda(again)]
    shown = [done(process) for process in both][0]


def transforms(value):
    """The transforms of a template, at any depth."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        if key in ("Transform", "Fn::Transform"):
            yield inner
        yield from transforms(inner)


class Files(unittest.TestCase):
    maxDiff = None

    def zip(self, kind):
        return zipfile.ZipFile(out / f"requeue-{kind}-{VERSION}-{ARCHITECTURE}.zip")

    def bill(self):
        return json.loads((out / f"requeue-lambda-{VERSION}-{ARCHITECTURE}.cdx.json").read_text())

    def test_two_builds_from_one_binary_give_the_same_bytes(self):
        self.assertEqual({path.name for path in again.iterdir()}, FILES)
        # A whole diff would take minutes.
        self.assertEqual([name for name in FILES if (out / name).read_bytes() != (again / name).read_bytes()], [])

    def test_the_program_was_started(self):
        self.assertIn("bootstrap: starts", shown)

    def test_the_zip_has_the_program_at_its_root_and_may_run_it(self):
        with self.zip("lambda") as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            self.assertEqual(set(entries), {"bootstrap", "LICENSE-APACHE", "LICENSE-MIT", "LICENSES-OF-DEPENDENCIES.txt"})
            self.assertEqual(archive.read("bootstrap"), BOOTSTRAP.read_bytes())
            self.assertEqual({name: oct(entry.external_attr >> 16) for name, entry in entries.items()}["bootstrap"], "0o100755")
            licences = archive.read("LICENSES-OF-DEPENDENCIES.txt").decode()
        for package in ("ring ", "aws-sdk-sqs ", "tokio "):
            self.assertIn(package, licences)

    def test_the_sums_fit(self):
        done(build("--out", out, "sums"))
        checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=out, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout.count(": OK")), (0, len(FILES)), checked.stdout + checked.stderr)

    def test_the_bill_names_the_binary_and_what_is_linked_into_it(self):
        bill = self.bill()
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.6"))
        main = bill["metadata"]["component"]
        self.assertEqual((main["name"], main["version"], main["hashes"][0]["content"]), ("requeue-lambda", VERSION, hashlib.sha256(BOOTSTRAP.read_bytes()).hexdigest()))
        parts = {part["name"]: part for part in bill["components"]}
        locked = set(re.findall(r'^name = "(.+)"$', (ROOT / "Cargo.lock").read_text(), re.MULTILINE))
        self.assertEqual(set(parts) - locked, set())
        for name in ("requeue", "ring", "aws-sdk-sqs", "tokio"):
            self.assertNotIn("scope", parts[name], name)
        self.assertEqual(parts["serde_derive"]["scope"], "excluded")
        self.assertRegex(parts["ring"]["hashes"][0]["content"], r"^[0-9a-f]{64}$")
        # Of other packages of the workspace.
        self.assertEqual({"requeue-embedded", "clap", "proptest"} & set(parts), set())
        self.assertEqual([name for name, part in parts.items() if not part.get("licenses")], [])
        references = {part["bom-ref"] for part in [main, *bill["components"]]}
        self.assertEqual({entry["ref"] for entry in bill["dependencies"]}, references)

    def test_the_bundle_differs_from_the_template_in_code_metadata_and_include_only(self):
        with self.zip("deploy") as archive:
            directory = f"requeue-deploy-{VERSION}-{ARCHITECTURE}/"
            files = {name.removeprefix(directory): archive.read(name) for name in archive.namelist()}
        template, source = yaml_parse(files["template.yaml"].decode()), yaml_parse((ROOT / "template.yaml").read_text())
        function, before = template["Resources"]["Function"], source["Resources"]["Function"]
        self.assertEqual((function["Properties"]["CodeUri"], function["Properties"]["Architectures"]), ("requeue-lambda.zip", [ARCHITECTURE]))
        self.assertNotIn("Metadata", function)
        del before["Metadata"]
        for name in ("CodeUri", "Architectures"):
            before["Properties"][name] = function["Properties"][name]
        self.assertIn(APPLICATION, template["Metadata"])
        del template["Metadata"][APPLICATION]
        body = source["Resources"]["Dashboard"]["Properties"]["DashboardBody"].pop("Fn::Transform")
        included = (ROOT / body["Parameters"]["Location"]).read_text()
        source["Resources"]["Dashboard"]["Properties"]["DashboardBody"] = yaml_parse(included)
        self.assertEqual(template, source)
        texts = {"README.md", "LICENSE-APACHE", "LICENSE-MIT", "LICENSES-OF-DEPENDENCIES.txt"}
        self.assertEqual(set(files), {"template.yaml", "samconfig.toml", "requeue-lambda.zip", *texts})
        self.assertEqual(files["samconfig.toml"], (ROOT / "samconfig.toml").read_bytes())
        self.assertEqual(files["requeue-lambda.zip"], (out / f"requeue-lambda-{VERSION}-{ARCHITECTURE}.zip").read_bytes())

    def test_the_bundle_has_the_metadata_of_an_application(self):
        with self.zip("deploy") as archive:
            names = archive.namelist()
            template = yaml_parse(archive.read(f"requeue-deploy-{VERSION}-{ARCHITECTURE}/template.yaml").decode())
            readme = archive.read(f"requeue-deploy-{VERSION}-{ARCHITECTURE}/README.md").decode()
        # The Serverless Application Repository refuses every other transform.
        self.assertEqual(list(transforms(template)), ["AWS::Serverless-2016-10-31"])
        application = template["Metadata"][APPLICATION]
        # Those of the template in the Developer Guide's "List of Supported AWS Resources". Look a new one up.
        supported = {"CloudWatch::Alarm", "CloudWatch::Dashboard", "DynamoDB::Table", "IAM::Role", "Logs::LogGroup", "SNS::Subscription", "SNS::Topic", "SNS::TopicPolicy", "SQS::Queue", "SQS::QueuePolicy", "Serverless::Function"}
        self.assertEqual({resource["Type"].removeprefix("AWS::") for resource in template["Resources"].values()} - supported, set())
        self.assertEqual(application["SemanticVersion"], VERSION)
        # The limits that the SAM Developer Guide documents, in "AWS SAM template Metadata section properties".
        self.assertRegex(application["Name"], r"^[a-zA-Z0-9-]{1,140}$")
        self.assertRegex(application["Author"], r"^[a-z0-9](([a-z0-9]|-(?!-)){0,125}[a-z0-9])?$")
        self.assertTrue(1 <= len(application["Description"]) <= 256, len(application["Description"]))
        self.assertLessEqual(len(application["Labels"]), 10)
        for label in application["Labels"]:
            self.assertRegex(label, r"^[a-zA-Z0-9+_:/@-]{1,127}$")
        package = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
        self.assertIn(application["SpdxLicenseId"], package["license"].split(" OR "))
        for name in ("HomePageUrl", "SourceCodeUrl"):
            self.assertTrue(application[name].startswith(package["repository"]), application[name])
        for name in ("LicenseUrl", "ReadmeUrl"):
            self.assertIn(f"requeue-deploy-{VERSION}-{ARCHITECTURE}/{application[name]}", names)
        # Outside of the repository, relative links lead nowhere.
        self.assertEqual(re.findall(r"\]\((?!https?:|#)[^)]*\)", readme), [])

    def test_the_template_of_the_bundle_lints_clean(self):
        with tempfile.TemporaryDirectory() as directory, self.zip("deploy") as archive:
            path = archive.extract(f"requeue-deploy-{VERSION}-{ARCHITECTURE}/template.yaml", directory)
            done = subprocess.run([Path(sys.executable).parent / "cfn-lint", "--regions", "us-east-1", "--template", path], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_a_program_that_lambda_cannot_start_is_refused(self):
        other = {"arm64": "x86_64", "x86_64": "arm64"}[ARCHITECTURE]
        with tempfile.TemporaryDirectory() as nothing:
            for processor, glibc, complaint in [(other, GLIBC, "its processor is EM_"), (ARCHITECTURE, "2.2", "at most 2.2 is allowed")]:
                process = build_lambda(Path(nothing), processor, glibc)
                words, _ = process.communicate()
                self.assertEqual((process.returncode, complaint in words), (1, True), words)
            self.assertEqual(os.listdir(nothing), [])


class Template(unittest.TestCase):
    INCLUDE = "{ Name: AWS::Include, Parameters: { Location: infra/dashboard.yaml } }"

    def test_an_include_becomes_the_file_and_its_comment_goes(self):
        text = f"Resources:\n  # Kept.\n  One:\n    Type: A\n\n  # Why\n  # it includes.\n  Two:\n    Body:\n      Fn::Transform: {self.INCLUDE}\n  Three: 3\n"
        whole = release.inlined(text)
        self.assertRegex(whole, r"(?s)^Resources:\n  # Kept.\n  One:\n    Type: A\n\n  Two:\n    Body:\n      Fn::Sub: >-\n        \{.*\n        \]\}\n  Three: 3\n$")

    def test_another_transform_is_refused(self):
        for transform in ("{ Name: Other }", f"\n          {self.INCLUDE}"):
            with self.subTest(transform), self.assertRaisesRegex(release.Refused, "a transform that"):
                release.inlined(f"Resources:\n  Two:\n    Body:\n      Fn::Transform: {transform}\n")


class Notes(unittest.TestCase):
    REPOSITORY = "https://git.example/requeue"
    CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n- Later.\n\n## [1.2.0] - 2027-01-31\n\n- [A guide](docs/a.md#b), [a site](https://example.com).\n\n## [1.1.0] - 2027-01-01\n\n- First.\n"

    def test_the_text_of_a_release_is_its_section_with_whole_links(self):
        text = release.notes("1.2.0", self.REPOSITORY, "v1.2.0", self.CHANGELOG)
        self.assertEqual(text, "- [A guide](https://git.example/requeue/blob/v1.2.0/docs/a.md#b), [a site](https://example.com).\n")

    def test_a_tag_without_its_version_section_or_address_is_refused(self):
        for version, repository, tag, complaint in [
            ("1.2.0", self.REPOSITORY, "v1.2.1", "the tag must be v1.2.0"),
            ("1.2.0", self.REPOSITORY, "1.2.0", "the tag must be v1.2.0"),
            ("1.3.0", self.REPOSITORY, "v1.3.0", "no section"),
            ("1.2.0", "https://requeue.invalid/repository", "v1.2.0", "a placeholder"),
        ]:
            with self.subTest(tag=tag, version=version), self.assertRaisesRegex(release.Refused, complaint):
                release.notes(version, repository, tag, self.CHANGELOG)

    def test_the_changelog_of_the_repository_has_the_form(self):
        changelog = (ROOT / "CHANGELOG.md").read_text().replace("## [Unreleased]", f"## [Unreleased]\n\n## [{VERSION}] - 2027-01-31", 1)
        self.assertIn("### Added", release.notes(VERSION, self.REPOSITORY, f"v{VERSION}", changelog))


class Pages(unittest.TestCase):
    def test_the_page_names_files_of_a_release(self):
        targets = [target for target, _ in release.PROCESSORS.values()]
        names = {name.replace(VERSION, "V").replace(ARCHITECTURE, processor) for name in FILES for processor in release.PROCESSORS}
        names |= {f"requeue-V-{target}.tar.gz" for target in targets}
        page = (ROOT / "docs/operate/deploy.md").read_text()
        found = re.findall(r"\brequeue-[\w.-]*\d\.\d\.\d-[\w.-]+\.(?:zip|tar\.gz)", page)
        self.assertTrue(found)
        self.assertEqual({re.sub(r"\d+\.\d+\.\d+", "V", name) for name in found} - names, set())


class CommandLine(unittest.TestCase):
    def test_a_program_of_another_version_is_refused(self):
        # As `cargo build` made it.
        path, target = ROOT / "target" / "debug" / "requeue", release.host()
        release.check_cli_start(path, target, VERSION)
        with self.assertRaisesRegex(release.Refused, "it must say 'requeue 99.0.0"):
            release.check_cli_start(path, target, "99.0.0")

    def test_the_archive_of_the_command_line_is_reproducible_and_may_run_it(self):
        files = [("requeue-1/requeue", b"program", 0o755), ("requeue-1/LICENSE-MIT", b"text", 0o644)]
        packed = release.tarred(files)
        self.assertEqual(packed, release.tarred(files))
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            found = [(member.name, archive.extractfile(member).read(), member.mode, member.mtime) for member in archive]
        self.assertEqual(found, [(*file, release.EPOCH) for file in files])
        # The time in the head of a gzip.
        self.assertEqual(int.from_bytes(packed[4:8], "little"), release.EPOCH)


class Workflows(unittest.TestCase):
    def test_zizmor_finds_no_weakness(self):
        done = subprocess.run([TOOLS / "release" / "bin" / "zizmor", "--offline", "--quiet", ROOT / ".github" / "workflows"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_only_the_last_job_may_write_and_it_runs_no_code_of_the_repository(self):
        workflow = yaml_parse((ROOT / ".github" / "workflows" / "release.yml").read_text())
        self.assertEqual(workflow["permissions"], {})
        jobs = workflow["jobs"]
        for name, job in jobs.items():
            allowed = {kind for kind, access in job["permissions"].items() if access == "write"}
            expected = {"attest": {"attestations", "id-token"}, "publish": {"contents"}}.get(name, set())
            self.assertEqual(allowed, expected, name)
            if allowed:
                words = json.dumps(job["steps"])
                self.assertNotIn("checkout", words, name)
                self.assertNotIn("infra/", words, name)
        parts = " ".join(row["parts"] for row in jobs["build"]["strategy"]["matrix"]["include"])
        for processor in release.PROCESSORS:
            self.assertIn(f"lambda {processor}", parts)


class Deployed(unittest.TestCase):
    """The bundle of a user without Rust."""

    STACK = "released"

    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        files = Path(directory.name)
        name = f"requeue-deploy-{VERSION}-{ARCHITECTURE}"
        with zipfile.ZipFile(out / f"{name}.zip") as archive:
            archive.extractall(files)
        cls.target = Target()
        cls.addClassCleanup(cls.target.close)
        # Neither cargo nor a checkout: sam alone, in the directory of the bundle.
        home = files / "home"
        home.mkdir()
        cls.directory, cls.environment = files / name, {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "AWS_ENDPOINT_URL": ENDPOINT,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "SAM_CLI_TELEMETRY": "0",
        }
        # The emulator does not support alarms on expressions.
        overrides = [f'TargetUrl="{cls.target.url}"', "Monitoring=none", "FunctionTimeout=10", "MessageTimeout=1"]
        cls.sam("deploy", "--stack-name", cls.STACK, "--region", "us-east-1", "--no-confirm-changeset", "--parameter-overrides", *overrides)
        (stack,) = aws("cloudformation").describe_stacks(StackName=cls.STACK)["Stacks"]
        outputs = {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}
        cls.queue = Queue(outputs["QueueUrl"], outputs["DeadLetterQueueUrl"], outputs["FunctionName"])
        # As in deployed_test.py: the emulator gives the mapping texts where AWS gives it numbers.
        cls.queue.configure(BatchSize=10, MaximumBatchingWindowInSeconds=0, ScalingConfig={"MaximumConcurrency": 2})

    @classmethod
    def sam(cls, *words):
        done = subprocess.run(["sam", *words], cwd=cls.directory, env=cls.environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)

    def test_a_message_goes_through_the_deployed_bundle(self):
        body = order("released", "ok")
        (message_id,) = self.queue.send(body)
        wait_for("the call", lambda: self.target.called("A-released"))
        self.queue.wait_for_counts((0, 0, 0))
        (call,) = self.target.called("A-released")
        self.assertEqual((call["body"], call["headers"]["idempotency-key"]), (body.encode(), message_id))

    def test_sam_uploads_what_publishing_needs(self):
        self.sam("package", "--resolve-s3", "--region", "us-east-1", "--output-template-file", "packaged.yaml")
        text = (self.directory / "packaged.yaml").read_text()
        packaged = yaml_parse(text)
        application = packaged["Metadata"][APPLICATION]
        uploaded = {"requeue-lambda.zip": packaged["Resources"]["Function"]["Properties"]["CodeUri"], "LICENSE-APACHE": application["LicenseUrl"], "README.md": application["ReadmeUrl"]}
        for name, address in uploaded.items():
            bucket, key = re.fullmatch("s3://([^/]+)/(.+)", address).groups()
            self.assertEqual(aws("s3").get_object(Bucket=bucket, Key=key)["Body"].read(), (self.directory / name).read_bytes(), name)
        # The request of `sam publish`. No emulator has the Serverless Application Repository, so the
        # SDK's model of the service checks it.
        client = Mock()
        client.create_application.return_value = {"ApplicationId": "arn"}
        publish_application(text, client)
        request = client.create_application.call_args.kwargs
        shape = aws("serverlessrepo").meta.service_model.operation_model("CreateApplication").input_shape
        self.assertEqual(ParamValidator().validate(request, shape).generate_report(), "")
        sent = (request["Name"], request["SemanticVersion"], request["LicenseUrl"], request["ReadmeUrl"])
        self.assertEqual(sent, ("requeue", VERSION, uploaded["LICENSE-APACHE"], uploaded["README.md"]))
        self.assertEqual(list(transforms(yaml_parse(request["TemplateBody"]))), ["AWS::Serverless-2016-10-31"])

    def test_the_function_has_the_processor_of_the_bundle(self):
        configuration = aws("lambda").get_function_configuration(FunctionName=self.queue.function)
        self.assertEqual((configuration["Architectures"], configuration["Runtime"]), ([ARCHITECTURE], "provided.al2023"))


if __name__ == "__main__":
    if not ENDPOINT:
        sys.exit("REQUEUE_TEST_MINISTACK is not set; run `tests/run deployed`")
    unittest.main()
