//! The recognition of ARNs of secrets, and of the part of a stored text.

use super::*;

const SECRET: &str = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:orders/api-AbCdEf";
const PARAMETER: &str = "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token";

fn stored(stage: Option<&str>, version: Option<&str>) -> Stored {
    let [stage, version] = [stage, version].map(|part| part.map(str::to_owned));
    Stored::Secret { arn: SECRET.to_owned(), region: "eu-west-1".to_owned(), stage, version }
}

#[test]
fn a_secret_is_named_as_ecs_names_it() {
    for (suffix, json_key, stage, version) in [
        ("", None, None, None),
        (":", None, None, None),
        (":::", None, None, None),
        (":token", Some("token"), None, None),
        (":token::", Some("token"), None, None),
        ("::AWSPREVIOUS:", None, Some("AWSPREVIOUS"), None),
        ("::AWSPREVIOUS", None, Some("AWSPREVIOUS"), None),
        (
            ":::9d4cb84b-ad69-40c0-a0ab-cead36b967e8",
            None,
            None,
            Some("9d4cb84b-ad69-40c0-a0ab-cead36b967e8"),
        ),
        (":ü$.a:stage:id", Some("ü$.a"), Some("stage"), Some("id")),
    ] {
        let word = format!("{SECRET}{suffix}");
        let arn = SecretArn::parse(&word).expect("an ARN").expect("of a secret");
        assert_eq!(
            (&arn.stored, arn.json_key.as_deref()),
            (&stored(stage, version), json_key),
            "{word}"
        );
        assert_eq!(arn.to_string(), word);
    }
}

#[test]
fn names_partitions_and_regions_are_not_judged() {
    for word in [
        "arn:aws-us-gov:secretsmanager:us-gov-west-1:000000000000:secret:rds!db-1_2+3=4.5@6",
        "arn:aws-cn:ssm:cn-north-1:123456789012:parameter/a.b_c-d",
        "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token:3",
        "arn:aws:ssm:eu-west-1:123456789012:parameter/orders/token:live",
    ] {
        let arn = SecretArn::parse(word).expect("an ARN").expect("of a secret");
        let (Stored::Secret { arn, .. } | Stored::Parameter { arn, .. }) = arn.stored;
        assert_eq!(arn, word);
    }
}

#[test]
fn an_arn_that_should_name_a_secret_and_does_not_is_refused() {
    let secret = Some(Err(NO_SECRET));
    let parameter = Some(Err(NO_PARAMETER));
    for (word, expected) in [
        ("", None),
        ("Bearer", None),
        ("arn", None),
        ("arn:aws:sqs:eu-west-1:123456789012:orders", None),
        ("ARN:aws:ssm:eu-west-1:123456789012:parameter/a", None),
        ("arn:aws:secretsmanager", secret.clone()),
        ("arn:aws:secretsmanager:eu-west-1:123456789012:secret", secret.clone()),
        ("arn:aws:secretsmanager:eu-west-1:123456789012:secret:", secret.clone()),
        ("arn:aws:secretsmanager:eu-west-1:123456789012:secrets:a", secret.clone()),
        ("arn:aws:secretsmanager:eu-west-1:123456789012:secret:a*", secret.clone()),
        ("arn:aws:secretsmanager:eu-west-1:123456789012:secret:a:b:c:d:e", secret.clone()),
        ("arn:aws:secretsmanager:eu-west-1:123456789012:secret:a:\u{1b}", secret.clone()),
        ("arn:aws:secretsmanager::123456789012:secret:a", secret.clone()),
        ("arn:aws:secretsmanager:eu-west-1::secret:a", secret.clone()),
        ("arn::secretsmanager:eu-west-1:123456789012:secret:a", secret),
        ("arn:aws:ssm:eu-west-1:123456789012:document/a", parameter.clone()),
        ("arn:aws:ssm:eu-west-1:123456789012:parameter/", parameter.clone()),
        ("arn:aws:ssm:eu-west-1:123456789012:parameter/a:", parameter.clone()),
        ("arn:aws:ssm:eu-west-1:123456789012:parameter/a:1:2", parameter.clone()),
        ("arn:aws:ssm:a.example.com/:123456789012:parameter/a", parameter),
    ] {
        assert_eq!(SecretArn::parse(word), expected, "{word}");
    }
}

#[test]
fn a_stored_text_is_meant_without_the_white_space_around_it_or_by_one_of_its_members() {
    let no_object =
        Err("the stored text is not a JSON object, so remove the json-key or store an object");
    let lacks = Err("the stored JSON object has no `token`");
    let no_text = Err("`token` of the stored JSON object is not a text");
    let empty = Err("the stored text is empty");
    for (suffix, text, expected) in [
        ("", "s3cret", Ok("s3cret")),
        ("", " \t\r\ns3c ret\n", Ok("s3c ret")),
        ("", "{\"token\": \"s3cret\"}\n", Ok("{\"token\": \"s3cret\"}")),
        ("", "\n", empty),
        ("", "", empty),
        (":token::", " {\"token\": \"s3cret\\n\", \"other\": 1}\n", Ok("s3cret")),
        (":token::", "{\"token\": \"\"}", empty),
        (":token::", "{\"Token\": \"s3cret\"}", lacks),
        (":token::", "{\"token\": [\"s3cret\"]}", no_text),
        (":token::", "{\"token\": null}", no_text),
        (":token::", "[\"s3cret\"]", no_object),
        (":token::", "s3cret", no_object),
    ] {
        let arn =
            SecretArn::parse(&format!("{SECRET}{suffix}")).expect("an ARN").expect("of a secret");
        let picked = arn.pick(text);
        assert_eq!(picked.as_deref().map_err(String::as_str), expected, "{suffix} of {text}");
        assert!(picked.err().is_none_or(|unfit| !unfit.contains("s3cret")), "{suffix} of {text}");
    }
    let parameter = SecretArn::parse(PARAMETER).expect("an ARN").expect("of a parameter");
    assert_eq!(parameter.pick("one,two\n").as_deref(), Ok("one,two"));
}
