//! The meaning of the variables of HTTP delivery, alone and together, and the errors for invalid
//! ones.

use super::*;
use crate::http::Proxy;

const SECRET: &str = "whsec_c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0";
const PREFIX: &str = "REQUEUE_";

fn read(vars: &[(&str, &str)]) -> Result<Config, String> {
    let vars = vars.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value));
    Config::from_vars(vars).map_err(|error| error.to_string())
}

fn refused(problems: &[&str]) -> String {
    let count = problems.len();
    let are = if count == 1 { " is" } else { "s are" };
    format!("{count} setting{are} invalid:\n  {}", problems.join("\n  "))
}

#[test]
fn every_variable_reaches_its_place() {
    let config = read(&[
        ("TARGET_URL", "http://example.com/"),
        ("ALLOW_HTTP", "true"),
        ("METHOD", "PATCH"),
        ("CONTENT_TYPE", "application/cbor"),
        ("HEADERS", r#"{"Authorization": "Bearer x"}"#),
        ("ATTRIBUTE_HEADERS", "tenant=X-Tenant"),
        ("SIGNING_SECRET", SECRET),
        ("CONNECT_TIMEOUT_SECONDS", "0.5"),
        ("READ_TIMEOUT_SECONDS", "0.25"),
        ("IDLE_TIMEOUT_SECONDS", "50"),
        ("HTTP_VERSION", "1.1"),
        ("TIMEOUT_SECONDS", "1.5"),
    ])
    .expect("all is well");
    assert!(config.required_target().is_ok());
    let http = format!("{:?}", config.http);
    for reached in [
        "method: PATCH",
        r#"content_type: Some("application/cbor")"#,
        r#""authorization": Sensitive"#,
        r#"attribute_headers: [("tenant", "x-tenant")]"#,
        "signing_secrets: [SigningSecret { .. }]",
        " timeout: 1.5s",
        "connect_timeout: 500ms",
        "read_timeout: Some(250ms)",
        "idle_timeout: 50s",
        "http1_only: true",
    ] {
        assert!(http.contains(reached), "{reached}: {http}");
    }
    assert_eq!(config.settings.limits.timeout.as_millis(), 1_500);
}

#[test]
fn the_target_is_a_url_or_a_function() {
    let name = "it must be the name of a function, name:alias, name:version or an ARN";
    let most = "must be a whole number from 1 to 10000";
    for (vars, problems) in [
        (&[("TARGET_FUNCTION", " orders:live "), ("SCOPE", "tenant")][..], &[][..]),
        (
            &[("TARGET_FUNCTION", "orders"), ("TARGET_URL", "https://example.com/")],
            &["REQUEUE_TARGET_FUNCTION is set beside REQUEUE_TARGET_URL; remove one of them"],
        ),
        (
            &[("TARGET_FUNCTION", "a b"), ("MESSAGES_PER_CALL", "0")],
            &[
                &format!("REQUEUE_MESSAGES_PER_CALL is `0`: {most}"),
                &format!("REQUEUE_TARGET_FUNCTION is `a b`: {name}"),
            ],
        ),
        (
            &[("TARGET_FUNCTION", "orders"), ("SCOPE", "a b")],
            &[
                "REQUEUE_SCOPE is `a b`: it must be a JSON pointer such as /tenant, of at most 16 names \
               and 1024 bytes, MessageGroupId, or the name of a message attribute",
            ],
        ),
        (&[("MESSAGES_PER_CALL", "10000")], &[]),
        (
            &[("MESSAGES_PER_CALL", "10001")],
            &[&format!("REQUEUE_MESSAGES_PER_CALL is `10001`: {most}")],
        ),
    ] {
        let expected = (!problems.is_empty()).then(|| refused(problems));
        assert_eq!(read(vars).err(), expected, "{vars:?}");
    }
    let config = read(&[
        ("TARGET_FUNCTION", "orders:live"),
        ("MESSAGES_PER_CALL", "7"),
        ("SCOPE", "tenant"),
    ])
    .expect("all is well");
    assert_eq!(config.function.map(|name| name.to_string()).as_deref(), Some("orders:live"));
    let settings = format!("{:?}", config.function_settings);
    for reached in ["messages_per_call: 7", r#"Attribute("tenant")"#] {
        assert!(settings.contains(reached), "{settings}");
    }
}

#[test]
fn a_function_has_the_time_of_the_longest_one_unless_a_limit_is_set() {
    for (vars, secs) in [
        (&[("TARGET_FUNCTION", "orders")][..], 915),
        (&[("TARGET_FUNCTION", "orders"), ("TIMEOUT_SECONDS", "7")], 7),
        (&[("TARGET_URL", "https://example.com/")], 30),
    ] {
        let timeout = read(vars).expect("all is well").settings.limits.timeout;
        assert_eq!(timeout.as_secs(), secs, "{vars:?}");
    }
}

#[test]
fn settings_of_the_other_kind_of_target_have_no_effect_and_are_named() {
    for (vars, without_effect) in [
        (
            &[
                ("TARGET_FUNCTION", "orders"),
                ("METHOD", "PUT"),
                ("SCOPE", "tenant"),
                ("MESSAGES_PER_CALL", "1"),
                ("ALLOW_HTTP", "true"),
                ("CONTENT_TYPE", ""),
            ][..],
            &["REQUEUE_ALLOW_HTTP", "REQUEUE_METHOD"][..],
        ),
        (
            &[
                ("TARGET_URL", "https://example.com/"),
                ("MESSAGES_PER_CALL", "1"),
                ("METHOD", "PUT"),
            ],
            &["REQUEUE_MESSAGES_PER_CALL"],
        ),
        (&[("METHOD", "PUT")], &[]),
    ] {
        assert_eq!(read(vars).expect("all is well").without_effect, without_effect, "{vars:?}");
    }
}

#[test]
fn a_header_is_refused_by_its_name_and_its_value_is_not_told() {
    for (headers, problem) in [
        ("{}", None),
        (r#"{"X-A": "s3cret", "X-B": "ü"}"#, None),
        (r#"{"X-A": "s3cret\r\nX-B: s3cret"}"#, Some("has `X-A`: invalid value of header x-a")),
        (r#"{"X-A": "s3cret\u0000"}"#, Some("has `X-A`: invalid value of header x-a")),
        (r#"{"X A": "s3cret"}"#, Some("has `X A`: invalid header name")),
        (r#"{"X\n": "s3cret"}"#, Some(r"has `X\n`: invalid header name")),
        (r#"{"Host": "s3cret"}"#, Some("has `Host`: header host cannot be set")),
        (
            r#"{"Webhook-Signature": "s3cret"}"#,
            Some("has `Webhook-Signature`: header webhook-signature cannot be set"),
        ),
        (r#"{"X-A": 3}"#, Some("has `X-A`: its value is not a text")),
        (r#"{"X-A": ["s3cret"]}"#, Some("has `X-A`: its value is not a text")),
        (r#"{"X-A": "s3cret", "x-a": "s3cret"}"#, Some("has `x-a` twice")),
        (r#"["s3cret"]"#, Some("is not a JSON object")),
        ("X-A: s3cret", Some("is not JSON from line 1, column 1 on")),
        ("{\"X-A\": \"s3cret\",\n\"s3cret", Some("is not JSON from line 2, column 7 on")),
    ] {
        let expected = problem.map(|problem| refused(&[&format!("REQUEUE_HEADERS {problem}")]));
        assert_eq!(read(&[("HEADERS", headers)]).err(), expected, "{headers}");
    }
}

#[test]
fn an_attribute_goes_into_a_header_that_is_free() {
    for (list, problem) in [
        ("tenant=X-Tenant, Body.Trace_1-a = X-Trace,tenant=X-Again", None),
        ("tenant", Some("has `tenant`: it must have the form attribute=header")),
        ("=X-Tenant", Some("has `=X-Tenant`: it must have the form attribute=header")),
        (
            "the tenant=X-Tenant",
            Some("has `the tenant=X-Tenant`: it must have the form attribute=header"),
        ),
        ("tenant=X-Tenant,", Some("has ``: it must have the form attribute=header")),
        ("tenant=", Some("has `tenant=`: invalid header name")),
        ("tenant=X=Y", Some("has `tenant=X=Y`: invalid header name")),
        (
            "tenant=Content-Length",
            Some("has `tenant=Content-Length`: header content-length cannot be set"),
        ),
        (
            "id=Idempotency-Key",
            Some("has `id=Idempotency-Key`: header idempotency-key cannot be set"),
        ),
        ("tenant=X-A,user=x-a", Some("has `user=x-a`: another attribute already has this header")),
    ] {
        let expected =
            problem.map(|problem| refused(&[&format!("REQUEUE_ATTRIBUTE_HEADERS {problem}")]));
        assert_eq!(read(&[("ATTRIBUTE_HEADERS", list)]).err(), expected, "{list}");
    }
}

#[test]
fn a_signing_secret_is_refused_by_its_number_and_is_not_told() {
    let both = format!(" {SECRET}\n{SECRET} ");
    let second = format!("{SECRET} s3cret");
    for (secrets, problem) in [
        (both.as_str(), None),
        (&second, Some("number 2 is invalid: a signing secret must begin with whsec_")),
        (
            "whsec_s3cret!",
            Some(
                "number 1 is invalid: a signing secret must be base64 after whsec_, with its padding",
            ),
        ),
        ("whsec_s3crets3", Some("number 1 is invalid: a signing secret must have 24 to 64 bytes")),
        (" ", Some("is blank")),
    ] {
        let expected =
            problem.map(|problem| refused(&[&format!("REQUEUE_SIGNING_SECRET {problem}")]));
        assert_eq!(read(&[("SIGNING_SECRET", secrets)]).err(), expected, "{secrets}");
    }
}

#[test]
fn what_is_wrong_with_a_target_is_told_with_all_the_rest() {
    let told = read(&[
        ("SIGNING_SECRET", "s3cret"),
        ("HEADERS", r#"{"Host": "s3cret", "X A": "s3cret"}"#),
        ("METHOD", "GET"),
        ("CONTENT_TYPE", "text/plain\r\nX: y"),
        ("CONNECT_TIMEOUT_SECONDS", "0"),
        ("READ_TIMEOUT_SECONDS", "5401"),
        ("IDLE_TIMEOUT_SECONDS", "soon"),
        ("HTTP_VERSION", "2"),
        ("CONCURRENCY", "0"),
    ]);
    let expected = [
        "REQUEUE_CONCURRENCY is `0`: must be a whole number from 1 to 1000",
        "REQUEUE_CONNECT_TIMEOUT_SECONDS is `0`: must be a number of seconds from 0.001 to 5400",
        "REQUEUE_CONTENT_TYPE is not a media type: invalid value of header content-type",
        "REQUEUE_HEADERS has `Host`: header host cannot be set",
        "REQUEUE_HEADERS has `X A`: invalid header name",
        "REQUEUE_HTTP_VERSION is `2`: must be one of auto, 1.1",
        "REQUEUE_IDLE_TIMEOUT_SECONDS is `soon`: must be a number of seconds from 0.001 to 5400",
        "REQUEUE_METHOD is `GET`: must be one of POST, PUT, PATCH",
        "REQUEUE_READ_TIMEOUT_SECONDS is `5401`: must be a number of seconds from 0.001 to 5400",
        "REQUEUE_SIGNING_SECRET number 1 is invalid: a signing secret must begin with whsec_",
    ];
    assert_eq!(told.err(), Some(refused(&expected)));
}

#[test]
fn a_refused_target_is_told_with_the_setting_that_allows_it() {
    let refused = |problem: &str| {
        Err(refused(&[&format!("REQUEUE_TARGET_URL is invalid: the target URL must {problem}")]))
    };
    let insecure = || {
        refused(
            "begin with https://, unless its host is a loopback address or http is allowed \
             explicitly; set REQUEUE_ALLOW_HTTP=true to allow it",
        )
    };
    let link_local = || {
        refused(
            "not name a link-local address, where credentials are served, unless that is allowed \
             explicitly; set REQUEUE_ALLOW_LINK_LOCAL=true to allow it",
        )
    };
    let runtime_api = || {
        refused(
            "not name Lambda's Runtime API, unless that is allowed explicitly; set REQUEUE_ALLOW_LINK_LOCAL=true to allow it",
        )
    };
    for (url, http, link, expected) in [
        ("https://example.com/", "", "", Ok(())),
        ("http://example.com/", "", "", insecure()),
        ("http://example.com/", "false", "true", insecure()),
        ("http://example.com/", "true", "", Ok(())),
        ("https://169.254.169.254/", "true", "false", link_local()),
        ("http://169.254.169.254/", "true", "", link_local()),
        ("http://169.254.169.254/", "", "true", insecure()),
        ("http://169.254.169.254/", "true", "true", Ok(())),
        ("http://localhost:9001/", "", "", runtime_api()),
        ("http://localhost:9001/", "", "true", Ok(())),
        ("http://localhost:2773/", "", "", Ok(())),
    ] {
        let vars = [("TARGET_URL", url), ("ALLOW_HTTP", http), ("ALLOW_LINK_LOCAL", link)];
        let vars = vars.map(|(name, value)| (format!("{PREFIX}{name}"), value.to_owned()));
        let runtime_api = Some("127.0.0.1:9001".to_owned());
        let read = Reader { runtime_api, ..Reader::new(Variables::new(vars)) }.into_config();
        assert_eq!(
            read.map(|_| ()).map_err(|error| error.to_string()),
            expected,
            "{url} {http} {link}"
        );
    }
}

#[test]
fn a_function_is_no_target_of_its_own() {
    const ARN: &str = "arn:aws:lambda:eu-west-1:123456789012:function:orders";
    let itself = "REQUEUE_TARGET_FUNCTION is this function itself: its calls would never end";
    for (target, is_itself) in [
        ("orders", true),
        ("orders:live", true),
        ("123456789012:function:orders", true),
        (ARN, true),
        (&format!("{ARN}:live"), true),
        (&ARN.replace("west", "north"), false),
        ("charge", false),
        ("orders-2", false),
    ] {
        let vars = [(format!("{PREFIX}TARGET_FUNCTION"), target.to_owned())];
        let own_name = Some(("orders".to_owned(), Some("eu-west-1".to_owned())));
        let read = Reader { own_name, ..Reader::new(Variables::new(vars)) }.into_config();
        let expected = is_itself.then(|| refused(&[itself]));
        assert_eq!(read.map_err(|error| error.to_string()).err(), expected, "{target}");
    }
}

#[test]
fn a_proxy_is_refused_where_the_target_needs_it() {
    let target = TargetUrl::parse("https://example.com/").expect("it is valid");
    let told =
        Proxy::new("socks5://proxy", "").to(&target).expect_err("it is no HTTP proxy").to_string();
    let invalid = || Err(refused(&[&told]));
    for (url, proxy, exceptions, expected) in [
        ("https://example.com/", "http://s3cret@proxy:3128", "", Ok(())),
        ("https://example.com/", "socks5://s3cret@proxy", "", invalid()),
        ("https://example.com/", "socks5://s3cret@proxy", "example.com", Ok(())),
        ("http://localhost/", "socks5://s3cret@proxy", "", Ok(())),
        ("", "socks5://s3cret@proxy", "", Ok(())),
    ] {
        let proxy = Proxy::new(proxy, exceptions);
        let vars = [(format!("{PREFIX}TARGET_URL"), url.to_owned())];
        let read = Reader { proxy, ..Reader::new(Variables::new(vars)) }.into_config();
        assert!(!format!("{read:?}").contains("s3cret"), "{read:?}");
        assert_eq!(
            read.map(|_| ()).map_err(|error| error.to_string()),
            expected,
            "{url} {exceptions}"
        );
    }
}

#[test]
fn a_client_certificate_and_its_key_go_together() {
    let made = rcgen::generate_simple_self_signed(["client".to_owned()]).expect("a certificate");
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let encrypted = key.replace("PRIVATE", "ENCRYPTED PRIVATE");
    let no_certificate =
        "REQUEUE_CLIENT_CERTIFICATE is missing: REQUEUE_CLIENT_KEY needs its certificate";
    let no_key = "REQUEUE_CLIENT_KEY is missing: REQUEUE_CLIENT_CERTIFICATE needs its private key";
    for (certificate, key, problem) in [
        ("", "", None),
        (certificate.as_str(), key.as_str(), None),
        (&certificate, "", Some(no_key)),
        ("", &key, Some(no_certificate)),
        (
            " ",
            &key,
            Some(
                "REQUEUE_CLIENT_CERTIFICATE is invalid: a client certificate must be X.509 in PEM, beginning with -----BEGIN CERTIFICATE-----",
            ),
        ),
        (
            &certificate,
            "s3cret",
            Some(
                "REQUEUE_CLIENT_KEY is invalid: a private key must be PKCS #8, PKCS #1 or SEC 1 in PEM: RSA, ECDSA with P-256 or P-384, or Ed25519",
            ),
        ),
        (
            &certificate,
            &encrypted,
            Some(
                "REQUEUE_CLIENT_KEY is invalid: the private key is encrypted: store it decrypted (openssl pkey), as a secret",
            ),
        ),
    ] {
        let read = read(&[("CLIENT_CERTIFICATE", certificate), ("CLIENT_KEY", key)]);
        let http = read.as_ref().map(|config| format!("{:?}", config.http)).unwrap_or_default();
        let is_set = http.contains("client_certificate: Some(ClientCertificate { .. })");
        assert_eq!(
            (read.err(), is_set),
            (problem.map(|problem| refused(&[problem])), problem.is_none() && !key.is_empty())
        );
    }
}

mod named_secrets {
    use super::*;
    use crate::secrets::SecretArn;

    const ARN: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders-AbCdEf";
    const OTHER: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:other-AbCdEf";
    const PARAMETER: &str = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders";

    fn stored(arn: &str) -> Stored {
        SecretArn::parse(arn).expect("an ARN").expect("of a secret").stored
    }

    /// Reads them where `texts` have been fetched.
    fn read(vars: &[(&str, &str)], texts: &[(&str, Result<&str, &str>)]) -> Result<Config, String> {
        let vars = vars.iter().map(|(name, value)| (format!("{PREFIX}{name}"), *value));
        let mut read = Reader::new(Variables::new(vars));
        let owned = |text: Result<&str, &str>| text.map(str::to_owned).map_err(str::to_owned);
        read.texts = texts.iter().map(|(arn, text)| (stored(arn), owned(*text))).collect();
        read.into_config().map_err(|error| error.to_string())
    }

    #[test]
    fn they_take_the_place_of_their_arns_and_are_not_shown() {
        let headers = format!(
            r#"{{"Authorization": "Bearer  {ARN} ", "X-Two": "{ARN}:: {PARAMETER}", "X-None": "arn:aws:sqs:"}}"#
        );
        let signing = format!("{OTHER}\n{SECRET}");
        let two = format!(" {SECRET} {SECRET}\n");
        let texts =
            [(ARN, Ok("s3cret\n")), (PARAMETER, Ok("s3cret,s3cret")), (OTHER, Ok(two.as_str()))];
        let config = read(&[("HEADERS", &headers), ("SIGNING_SECRET", &signing)], &texts)
            .expect("all is well");
        let http = format!("{:?}", config.http);
        for reached in [
            r#""authorization": Sensitive"#,
            r#""x-two": Sensitive"#,
            "signing_secrets: [SigningSecret { .. }, SigningSecret { .. }, SigningSecret { .. }]",
        ] {
            assert!(http.contains(reached), "{reached}: {http}");
        }
        assert!(!format!("{config:?}").contains("s3cret"));
    }

    #[test]
    fn they_are_checked_as_what_is_written_down() {
        let denied = "AccessDeniedException: do this";
        let has = |problem: &str| format!("REQUEUE_HEADERS has `X-Key`: {problem}");
        let number = |number, problem: &str| {
            format!("REQUEUE_SIGNING_SECRET number {number} is invalid: {problem}")
        };
        let of = |arn: &str, problem: &str| format!("{arn}: {problem}");
        let secret = format!("whsec_s3cret {SECRET}");
        let key = format!("{ARN}:key::");
        for (header, signing, text, problems) in [
            (ARN, "", Ok("s3\ncret"), vec![has("invalid value of header x-key")]),
            (
                ARN,
                ARN,
                Ok(" "),
                vec![
                    has(&of(ARN, "the stored text is empty")),
                    number(1, &of(ARN, "the stored text is empty")),
                ],
            ),
            // Fetched texts are not searched for ARNs.
            (ARN, "", Ok(OTHER), vec![]),
            ("", ARN, Ok(OTHER), vec![number(1, "a signing secret must begin with whsec_")]),
            (
                "",
                ARN,
                Ok("whsec_s3cret!"),
                vec![number(1, "a signing secret must be base64 after whsec_, with its padding")],
            ),
            (
                "",
                ARN,
                Ok(&secret),
                vec![number(1, "a signing secret must be base64 after whsec_, with its padding")],
            ),
            (
                &key,
                "",
                Ok("s3cret"),
                vec![has(&of(
                    &key,
                    "the stored text is not a JSON object, so remove the json-key or store an object",
                ))],
            ),
            (
                &key,
                "",
                Ok(r#"{"Key": "s3cret"}"#),
                vec![has(&of(&key, "the stored JSON object has no `key`"))],
            ),
            (
                &key,
                "",
                Ok(r#"{"key": {"s3cret": "s3cret"}}"#),
                vec![has(&of(&key, "`key` of the stored JSON object is not a text"))],
            ),
            (
                &key,
                ARN,
                Err(denied),
                vec![
                    has(&of(&key, "AccessDeniedException: do this")),
                    number(1, &of(ARN, "AccessDeniedException: do this")),
                ],
            ),
        ] {
            let headers = format!(r#"{{"X-Key": "{header}"}}"#);
            let vars = [("HEADERS", headers.as_str()), ("SIGNING_SECRET", signing)];
            let told = read(&vars, &[(ARN, text)]).err();
            let problems: Vec<&str> = problems.iter().map(String::as_str).collect();
            assert_eq!(
                told,
                (!problems.is_empty()).then(|| refused(&problems)),
                "{header} {signing}"
            );
        }
    }

    #[test]
    fn a_policy_may_be_stored_as_well() {
        let retries = |text| {
            read(&[("POLICY", PARAMETER)], &[(PARAMETER, text)])
                .map(|config| config.settings.policy.max_retries)
        };
        assert_eq!(retries(Ok(" {\"maxRetries\": 7}\n")), Ok(7));
        let refused = |problem: &str| Err(refused(&[&format!("REQUEUE_POLICY {problem}")]));
        let of = |problem: &str| format!("cannot be read: {PARAMETER}: {problem}");
        assert_eq!(
            retries(Ok("{\"maxRetrys\": 7}")),
            refused("maxRetrys is unknown; did you mean maxRetries?")
        );
        let hidden = r#"{"maxRetries": "s3cret", "s3cret": 1, "errorConfigs": {"QUOTA": {"jitter":
            {"s3cret": 2}, "s3cret": 3}}, "rules": ["s3cret", {"match": {"header": {"s3 cret": "a"},
            "words": ["s3cret", 7]}, "class": "s3cret"}], "idempotency": {"key": "s3cret"}}"#;
        let told = retries(Ok(hidden)).expect_err("it is wrong");
        for problem in [
            "maxRetries is `…`: must be ",
            "… is unknown: use one of ",
            "errorConfigs.QUOTA.jitter is `…`: must be ",
            "rules[1].class is `…`: must be ",
            "idempotency.key is `…`: must be a JSON pointer",
        ] {
            assert!(told.contains(problem), "{problem}: {told}");
        }
        assert!(!told.contains("cret"), "{told}");
        assert_eq!(retries(Err("AccessDeniedException")), refused(&of("AccessDeniedException")));
        let no_object = of("the stored text is not a JSON object; store the policy document");
        for text in ["policy.json", "[]"] {
            assert_eq!(retries(Ok(text)), refused(&no_object));
        }
        let not_fetched = read(&[("POLICY", PARAMETER)], &[]).map(|_| 0);
        assert_eq!(not_fetched, refused(&of(super::super::target::NOT_FETCHED)));
        let vars = [(format!("{PREFIX}POLICY"), PARAMETER)];
        let (_, stored) = Config::from_vars_without_secrets(vars).expect("all is well");
        assert_eq!(stored, [PARAMETER.to_owned()].into());
    }

    #[test]
    fn a_word_that_should_be_an_arn_is_refused_and_is_not_told() {
        let secret = "the ARN of a secret must have the form ";
        let between = "the ARN of a secret must have spaces around it";
        for (value, problem) in [
            ("Bearer arn:aws:secretsmanager:s3cret", secret.to_owned()),
            ("arn:aws:ssm:s3cret", secret.replace("secret", "parameter")),
            (&format!("token=s3cret{ARN}"), between.to_owned()),
            (&format!("'{PARAMETER}'"), between.to_owned()),
        ] {
            let told = read(&[("HEADERS", &format!(r#"{{"X-Key": "{value}"}}"#))], &[])
                .expect_err("refused");
            let begin = format!("1 setting is invalid:\n  REQUEUE_HEADERS has `X-Key`: {problem}");
            assert!(told.starts_with(&begin) && !told.contains("s3cret"), "{told}");
        }
    }

    #[test]
    fn a_client_certificate_may_be_one_and_is_left_out_if_a_part_of_it_is_skipped() {
        let made =
            rcgen::generate_simple_self_signed(["client".to_owned()]).expect("a certificate");
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let vars = [("CLIENT_CERTIFICATE", certificate.as_str()), ("CLIENT_KEY", ARN)];
        let read = read(&vars, &[(ARN, Ok(&key))]).expect("all is well");
        assert!(format!("{:?}", read.http).contains("client_certificate: Some"));
        let skipped = Config::from_vars_without_secrets(
            vars.map(|(name, value)| (format!("{PREFIX}{name}"), value)),
        );
        let (config, secrets) = skipped.expect("all else is well");
        assert_eq!(secrets, [ARN.to_owned()].into());
        assert!(format!("{:?}", config.http).contains("client_certificate: None"));
    }

    #[test]
    fn they_can_be_loaded_on_any_thread() {
        fn check(_: impl Future<Output = Result<Config, InvalidConfig>> + Send + 'static) {}
        check(Config::load());
    }

    #[test]
    fn they_are_refused_where_nothing_is_fetched() {
        let vars = [
            ("HEADERS", format!(r#"{{"X-Key": "{ARN}"}}"#)),
            ("SIGNING_SECRET", format!("{SECRET} {PARAMETER}")),
        ];
        let vars = vars.iter().map(|(name, value)| (format!("{PREFIX}{name}"), value.as_str()));
        let told = Config::from_vars(vars).map_err(|error| error.to_string()).err();
        let not = target::NOT_FETCHED;
        let expected = [
            format!("REQUEUE_HEADERS has `X-Key`: {ARN}: {not}"),
            format!("REQUEUE_SIGNING_SECRET number 2 is invalid: {PARAMETER}: {not}"),
        ];
        assert_eq!(told, Some(refused(&expected.each_ref().map(String::as_str))));
    }

    #[test]
    fn they_are_left_out_and_named_where_they_are_skipped() {
        let read = |headers: &str, signing: &str| {
            let vars = [("HEADERS", headers), ("SIGNING_SECRET", signing)];
            let vars = vars.map(|(name, value)| (format!("{PREFIX}{name}"), value));
            Config::from_vars_without_secrets(vars).map_err(|error| error.to_string())
        };
        let headers = format!(
            r#"{{"X-Key": "Bearer {ARN}:key::", "X-Two": "{OTHER} {PARAMETER}:3", "X-Plain": "a"}}"#
        );
        let (config, secrets) =
            read(&headers, &format!("{ARN}::AWSPREVIOUS: {SECRET} {PARAMETER}:live"))
                .expect("all else is well");
        assert_eq!(secrets, [ARN, OTHER, PARAMETER].map(str::to_owned).into());
        let http = format!("{:?}", config.http);
        assert!(
            http.contains("x-plain") && !http.contains("x-key") && !http.contains("x-two"),
            "{http}"
        );
        assert!(http.contains("signing_secrets: [SigningSecret { .. }]"), "{http}");
        // Other problems of the same text are reported too.
        let told =
            read(&format!(r#"{{"X-Key": "{ARN} '{PARAMETER}'"}}"#), &format!("{ARN} s3cret")).err();
        let expected = [
            "REQUEUE_HEADERS has `X-Key`: the ARN of a secret must have spaces around it",
            "REQUEUE_SIGNING_SECRET number 2 is invalid: a signing secret must begin with whsec_",
        ];
        assert_eq!(told, Some(refused(&expected)));
    }
}
