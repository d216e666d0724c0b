#!/usr/bin/env python3
"""The functions of `requeue new --python`, `--node` and `--java`, with their own tests.

Needs `target/debug/requeue`, pytest and Powertools in this Python, node on the PATH, and
tests/starters/node_modules. `tests/run examples` provides them. Maven's packages are not here, so that
the function in Java is compiled against the few types that it uses, if there is a compiler.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUEUE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "requeue"
EVENTS = "com.amazonaws.services.lambda.runtime"
POWERTOOLS = "software.amazon.lambda.powertools.batch"

# The types of AWS and JUnit that the function in Java and its tests use.
JAVA_TYPES = {
    f"{EVENTS}/Context": "public interface Context {}",
    f"{EVENTS}/RequestHandler": "public interface RequestHandler<I, O> { O handleRequest(I input, Context context); }",
    f"{EVENTS}.events/SQSEvent": """public class SQSEvent {
        private java.util.List<SQSMessage> records;
        public java.util.List<SQSMessage> getRecords() { return records; }
        public void setRecords(java.util.List<SQSMessage> records) { this.records = records; }
        public static class SQSMessage {
            private String messageId, body;
            public String getMessageId() { return messageId; }
            public void setMessageId(String messageId) { this.messageId = messageId; }
            public String getBody() { return body; }
            public void setBody(String body) { this.body = body; }
        }
    }""",
    f"{EVENTS}.events/SQSBatchResponse": """public class SQSBatchResponse {
        public java.util.List<BatchItemFailure> failures = new java.util.ArrayList<>();
        public java.util.List<BatchItemFailure> getBatchItemFailures() { return failures; }
        public record BatchItemFailure(String id) { public String getItemIdentifier() { return id; } }
    }""",
    f"{POWERTOOLS}/BatchMessageHandlerBuilder": f"""public class BatchMessageHandlerBuilder {{
        java.util.function.BiConsumer<{EVENTS}.events.SQSEvent.SQSMessage, Throwable> failed;
        public BatchMessageHandlerBuilder withSqsBatchHandler() {{ return this; }}
        public BatchMessageHandlerBuilder withFailureHandler(java.util.function.BiConsumer<{EVENTS}.events.SQSEvent.SQSMessage, Throwable> failed) {{
            this.failed = failed;
            return this;
        }}
        public Batch buildWithRawMessageHandler(java.util.function.Consumer<{EVENTS}.events.SQSEvent.SQSMessage> handler) {{
            return (event, context) -> {{
                var response = new {EVENTS}.events.SQSBatchResponse();
                for (var message : event.getRecords()) {{
                    try {{
                        handler.accept(message);
                    }} catch (Throwable error) {{
                        failed.accept(message, error);
                        response.failures.add(new {EVENTS}.events.SQSBatchResponse.BatchItemFailure(message.getMessageId()));
                    }}
                }}
                return response;
            }};
        }}
        public interface Batch {{ {EVENTS}.events.SQSBatchResponse processBatch({EVENTS}.events.SQSEvent event, {EVENTS}.Context context); }}
    }}""",
    "org.junit.jupiter.api/Test": """@java.lang.annotation.Retention(java.lang.annotation.RetentionPolicy.RUNTIME)
    public @interface Test {}""",
    "org.junit.jupiter.api/Assertions": """public class Assertions {
        public static void assertEquals(Object one, Object other) { if (!one.equals(other)) throw new AssertionError(one + " is not " + other); }
    }""",
    "orders/Main": """public class Main {
        public static void main(String[] none) throws Exception {
            for (var method : HandlerTest.class.getDeclaredMethods()) {
                if (!method.isAnnotationPresent(org.junit.jupiter.api.Test.class)) continue;
                method.setAccessible(true);
                method.invoke(new HandlerTest());
                System.out.println(method.getName());
            }
        }
    }""",
}


def run(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}\n{done.stdout}{done.stderr}")
    return done.stdout


class Starters(unittest.TestCase):
    def project(self, option):
        there = Path(self.enterContext(tempfile.TemporaryDirectory())) / "orders"
        run(REQUEUE, "new", there, option, cwd=ROOT)
        return there

    def test_the_tests_of_the_function_in_python_pass(self):
        project = self.project("--python")
        self.assertIn("4 passed", run(sys.executable, "-m", "pytest", "-q", cwd=project))
        app = project / "function/app.py"
        app.write_text(re.sub("^processor = .*", self.fifo(), app.read_text().replace("BatchProcessor", "SqsFifoPartialProcessor", 1), count=1, flags=re.MULTILINE))
        self.assertIn("4 passed", run(sys.executable, "-m", "pytest", "-q", cwd=project))

    def fifo(self):
        """The page's processor for FIFO queues."""
        page = (ROOT / "docs/start/languages.md").read_text()
        (snippet,) = re.findall(r"^```python\n(processor = Sqs.*?)^```", page, re.MULTILINE | re.DOTALL)
        return snippet

    def with_powertools(self):
        """The page's handler in Java with Powertools."""
        page = (ROOT / "docs/start/languages.md").read_text()
        (snippet,) = re.findall(r"^```java\n(    @Override\n.*?)^```", page, re.MULTILINE | re.DOTALL)
        return snippet

    def test_the_tests_of_the_function_in_typescript_pass(self):
        function = self.project("--node") / "function"
        (function / "node_modules").symlink_to(ROOT / "tests/starters/node_modules")
        self.assertIn("pass 4", run("node", "--test", "--test-reporter=spec", cwd=function))
        options = ["--noEmit", "--strict", "--module", "nodenext", "--allowImportingTsExtensions", "--erasableSyntaxOnly", "--types", "node"]
        run("node", "node_modules/typescript/bin/tsc", *options, "app.ts", "app.test.ts", cwd=function)
        # As the page says for FIFO queues.
        app = function / "app.ts"
        fifo = app.read_text().replace("BatchProcessor, EventType,", "SqsFifoPartialProcessorAsync,").replace("new BatchProcessor(EventType.SQS)", "new SqsFifoPartialProcessorAsync()")
        app.write_text(fifo.replace("throwOnFullBatchFailure: false }", "throwOnFullBatchFailure: false, skipGroupOnError: true }"))
        self.assertIn("pass 4", run("node", "--test", "--test-reporter=spec", cwd=function))
        run("node", "node_modules/typescript/bin/tsc", *options, "app.ts", cwd=function)

    def test_the_functions_ask_for_versions_that_the_tests_have(self):
        asked = json.loads((self.project("--node") / "function/package.json").read_text())["dependencies"]
        tried = json.loads((ROOT / "tests/starters/package.json").read_text())["dependencies"]
        # `sam build` needs esbuild among the dependencies, and the tests do not.
        del asked["esbuild"]
        self.assertEqual({name: version.removeprefix("^") for name, version in asked.items()}, {name: tried[name] for name in asked})
        (least,) = re.findall(r"powertools>=([\d.]+),", (self.project("--python") / "function/requirements.txt").read_text())
        self.assertIn(f"aws-lambda-powertools=={least}.", (ROOT / "tests/requirements-starters.txt").read_text())

    def test_the_snippets_of_the_page_are_parts_of_the_functions(self):
        page, _ = (ROOT / "docs/start/languages.md").read_text().split("\n## An HTTP service\n")
        for option, language, path in [
            ("--python", "python", "app.py"),
            ("--node", "ts", "app.ts"),
            ("--java", "java", "src/main/java/orders/Handler.java"),
        ]:
            function = (self.project(option) / "function" / path).read_text()
            snippets = re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
            self.assertTrue(snippets, language)
            # Others take the place of the function's lines.
            for snippet in set(snippets) - {self.fifo(), self.with_powertools()}:
                self.assertIn(snippet, function)

    @unittest.skipUnless(shutil.which("javac"), "there is no javac")
    def test_the_tests_of_the_function_in_java_pass(self):
        source = self.project("--java") / "function/src"
        for name, text in JAVA_TYPES.items():
            package, type_ = name.split("/")
            (source / f"{type_}.java").write_text(f"package {package};\n{text}")

        def test():
            run("javac", "-d", "classes", *source.rglob("*.java"), cwd=source)
            self.assertEqual(len(run("java", "-cp", "classes", "orders.Main", cwd=source).split()), 3)

        test()
        handler = source / "main/java/orders/Handler.java"
        imports = f"import java.util.concurrent.ConcurrentHashMap;\nimport {POWERTOOLS}.BatchMessageHandlerBuilder;\n"
        text = handler.read_text().replace("import java.util.List;\n", f"import java.util.List;\n{imports}")
        handler.write_text(re.sub(r"    @Override\n.*?\n    }\n", lambda _: self.with_powertools(), text, count=1, flags=re.DOTALL))
        test()


if __name__ == "__main__":
    unittest.main()
