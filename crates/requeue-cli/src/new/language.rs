//! The functions that `requeue new` writes in other languages than Rust.

use super::File;

pub(super) struct Language {
    pub(super) files: &'static [File],
    /// The first properties of the function in the template, and what SAM needs beside them.
    pub(super) properties: &'static str,
    pub(super) test: &'static [&'static str],
    /// The commands that run it on a laptop, with the runtime's interface client.
    pub(super) serve: &'static str,
    pub(super) ignored: &'static str,
}

/// In the order of their options.
pub(super) const LANGUAGES: [Language; 3] = [
    Language {
        files: &[
            ("function/app.py", include_str!("../../templates/python-app.py")),
            ("function/requirements.txt", include_str!("../../templates/python-requirements.txt")),
            ("test_app.py", include_str!("../../templates/python-test_app.py")),
        ],
        properties: "    Properties:
      CodeUri: function
      Handler: app.handler
      Runtime: python3.13
      Architectures: [arm64]
      MemorySize: 256",
        test: &["pip install -r function/requirements.txt pytest", "python -m pytest"],
        serve: "pip install awslambdaric && \
                requeue serve --target -- python3 -m awslambdaric function.app.handler",
        ignored: "__pycache__\n",
    },
    Language {
        files: &[
            ("function/app.ts", include_str!("../../templates/node-app.ts")),
            ("function/app.test.ts", include_str!("../../templates/node-app.test.ts")),
            ("function/package.json", include_str!("../../templates/node-package.json")),
        ],
        properties: "    Metadata:
      BuildMethod: esbuild
      BuildProperties: { Format: esm, OutExtension: [.js=.mjs], Target: es2023, EntryPoints: [app.ts] }
    Properties:
      CodeUri: function
      Handler: app.handler
      Runtime: nodejs22.x
      Architectures: [arm64]
      MemorySize: 256",
        test: &["npm install --prefix function", "npm test --prefix function"],
        serve: "npm install --no-save aws-lambda-ric && npm run build --prefix function && \
                requeue serve --target -- npx aws-lambda-ric function/app.handler",
        ignored: "node_modules\napp.mjs\n",
    },
    Language {
        files: &[
            ("function/pom.xml", include_str!("../../templates/java-pom.xml")),
            (
                "function/src/main/java/orders/Handler.java",
                include_str!("../../templates/java-Handler.java"),
            ),
            (
                "function/src/test/java/orders/HandlerTest.java",
                include_str!("../../templates/java-HandlerTest.java"),
            ),
        ],
        properties: "    Properties:
      CodeUri: function
      Handler: orders.Handler::handleRequest
      Runtime: java21
      Architectures: [arm64]
      MemorySize: 512",
        test: &["mvn --file function/pom.xml test"],
        serve: "mvn --file function/pom.xml package dependency:copy-dependencies && \
                requeue serve --target -- java -cp 'function/target/classes:function/target/dependency/*' \
                com.amazonaws.services.lambda.runtime.api.client.AWSLambda orders.Handler",
        ignored: "",
    },
];
