//! Reads codes of errors of any source: the codes by which a retry helps, and the code that logs
//! and dead letters may show. Error bodies quote their requests, so only a text that looks like the
//! name of an error passes: no sentence, address, id or token.

use serde_json::Value;

use super::status::fold;
use crate::failure::FailureClass;

/// Parts of codes and of names of exceptions by which a retry helps, of letters in lower case, and
/// their meaning. The first row that matches wins.
pub(super) const PARTS: [(FailureClass, &str, &str); 4] = [
    (
        FailureClass::Quota,
        "quota exceeded",
        "quotaexceeded quotasexceeded quotaviolation quotalimit exceededcurrentquota \
        insufficientquota servicequota spendlimit dailylimit billinglimit billinghardlimit overrate spamrisktoomany",
    ),
    (
        FailureClass::RateLimit,
        "rate limit",
        "throttl ratelimit rateexceeded toomanyrequest toomanyattempt toomanyfailedattempt \
        toomanywrite toomanyupdate \
        requestlimitexceeded concurrentlimit concurrencylimit runsexceeded executionlimitexceeded \
        apiinvocationlimit throughputexceeded resourceexhausted slowdown bulkheadfull overqps \
        complexitybudget",
    ),
    (
        FailureClass::Temporary,
        "busy",
        "inprogress concurren deadlock writeconflict transactionconflict requestconflict \
        operationaborted crawlerrunning databaseresuming clusterblock optimisticlock \
        pessimisticlock serializationfailure locktimeout lockwait locknotavailable tolockrow \
        resourcelocked beingdeleted deletedrecently notready rcrdhasbeenchanged deploymentactive \
        backenderror locked filelock pendingoperation pendingcopy transientstate operationconflict \
        simultaneous capacityexceeded idempotencyconflict lasttoken alreadyhasoperation \
        leasealreadypresent leaseisbreaking leaseidmissing sharingviolation resourcebusy systembusy \
        tryagainlater retrylater stillprocessing allocationfailed nospaceleft duringpagination \
        toolusefailed jsonvalidatefailed",
    ),
    (
        FailureClass::Temporary,
        DOWN,
        "serviceunavailable serverunavailable tableunavailable temporarily temporaryerror \
        transienterror overloaded serverbusy maintenance institutiondown notresponding \
        institutionnotavailable",
    ),
];
/// The meaning of parts for a service that does not work, whatever the request.
pub(super) const DOWN: &str = "service down";

/// Parts of other codes that have one of [`PARTS`], too: `RateLimitPolicyNotFound`, and the limits
/// and locks of a price, a card or a login.
const OTHERS: &str = "\
    notfound exchangerate interestrate taxrate toomanyrequested decline accountlocked userlocked \
    cardlocked itemlocked lockedout";

/// The class of a code by a part of it that begins a word, and the meaning of that part:
/// `Throttling.User`, but neither `invalid_rate_limit` nor `CORPORATE_LIMIT`.
pub(super) fn by_part(code: &str) -> Option<(FailureClass, &'static str)> {
    let tails = tails(presentable(code)?);
    let has = |part: &str| tails.iter().any(|tail| tail.starts_with(part));
    let is_it = |row: &&(_, _, &str)| row.2.split(' ').any(has);
    let is_other = tails.first()?.starts_with("invalid") || OTHERS.split(' ').any(has);
    PARTS.iter().find(is_it).filter(|_| !is_other).map(|row| (row.0, row.1))
}

/// The letters from the beginning of each word: `ratelimit`, `limit` of `RateLimit` or `RATE_LIMIT`.
fn tails(code: &str) -> Vec<String> {
    let bytes = code.as_bytes();
    let is_first = |at: &usize| {
        let is_hump = |before: u8| {
            let is_end = bytes.get(at + 1).is_some_and(u8::is_ascii_lowercase);
            bytes[*at].is_ascii_uppercase() && (before.is_ascii_lowercase() || is_end)
        };
        let before = at.checked_sub(1).map(|at| bytes[at]);
        before.is_none_or(|before| !before.is_ascii_alphabetic() || is_hump(before))
    };
    (0..bytes.len()).filter(is_first).map(|at| fold(&code[at..])).collect()
}

/// The code without the text that a protocol puts around it:
/// `com.amazon.coral.service#ThrottlingException:http://…`.
pub(super) fn bare(code: &str) -> &str {
    let code = code.split_once('#').map_or(code, |(_, code)| code);
    let code = code.split(':').next().unwrap_or(code);
    code.rsplit('.').next().unwrap_or(code)
}

/// The longest code. It bounds the name of a group of dead letters.
const MAX_BYTES: usize = 64;
/// A code has few digits: phone numbers, dates, addresses of networks and most ids have more.
const MAX_DIGITS: usize = 6;
/// A word of this many hexadecimal digits, or letters and digits, is an id or a token if it has a
/// decimal digit.
const MIN_HEX_ID: usize = 8;
const MIN_TOKEN: usize = 16;

/// The fields that name an error, the most specific first.
const NAMES: &str = "code reason errorCode errorType ECODE o:errorCode errorName";

/// Words that any error may have.
const EMPTY: [&str; 6] = ["error", "errors", "fail", "failed", "failure", "error.list"];

/// A field of an object. Services differ in the case of its name and in the lines between its words.
pub(super) fn field<'v>(object: &'v Value, name: &str) -> &'v Value {
    let letters = |name: &str| name.replace('_', "").to_ascii_lowercase();
    // `__type` is another field than `type`.
    let is_like = |key: &str| !key.starts_with('_') && letters(key) == letters(name);
    let like = || object.as_object()?.iter().find(|field| is_like(field.0));
    object.get(name).or_else(|| like().map(|field| field.1)).unwrap_or(&Value::Null)
}

/// The first code in a JSON error body, unless it only repeats the status.
pub(super) fn of_errors(status: u16, errors: &[&Value]) -> Option<String> {
    let field =
        |name: &str| errors.iter().find_map(|error| of_value(self::field(error, name), status));
    // HubSpot: without an error next to it, a category may be anything.
    let category = |error: &&Value| {
        (error["status"] == "error").then(|| of_value(&error["category"], status)).flatten()
    };
    let of_summary = |error: &&Value| {
        let mut tags = summary(error["error_summary"].as_str()?).splitn(3, '/');
        let (tag, second) = (tags.next()?, tags.next());
        let tags = second.map_or(tag.to_owned(), |second| format!("{tag}/{second}"));
        presentable(&tags).map(str::to_owned)
    };
    NAMES
        .split(' ')
        .find_map(field)
        .or_else(|| errors.iter().find_map(category))
        .or_else(|| errors.iter().find_map(|error| of_problem_type(&error["type"])))
        .or_else(|| errors.iter().find_map(of_summary))
        // `"error": "invalid_grant"`
        .or_else(|| errors.iter().find_map(|error| of_value(error, status)))
        .or_else(|| field("status"))
}

/// Dropbox's summary of an error, without the points at its end: `path/not_found/..`.
pub(super) fn summary(text: &str) -> &str {
    text.trim_end_matches(['.', '/'])
}

fn of_value(value: &Value, status: u16) -> Option<String> {
    let text = value
        .as_str()
        .map(str::to_owned)
        .or_else(|| value.as_u64().map(|code| code.to_string()))?;
    (text != status.to_string() && presentable(&text).is_some()).then_some(text)
}

/// RFC 9457: a URI that ends in the code, or `about:blank`, which has no meaning.
fn of_problem_type(value: &Value) -> Option<String> {
    let uri = value.as_str().filter(|uri| *uri != "about:blank")?;
    let code = uri.trim_end_matches('/').rsplit(['#', '/', ':']).next()?;
    presentable(code).map(str::to_owned)
}

/// Whether the text is written as a constant: `TOO_MANY_ATTEMPTS_TRY_LATER`.
pub(super) fn is_constant(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.contains('_') && text.bytes().all(is_part)
}

/// The text itself if it looks like the name of a kind of error: no sentence, address, id or token.
/// Requeue repeats only such texts of a service or a function.
pub fn presentable(text: &str) -> Option<&str> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:/-".contains(&byte);
    let count = |is_it: fn(&u8) -> bool| text.bytes().filter(is_it).count();
    let digits = count(u8::is_ascii_digit);
    let is_named = !EMPTY.contains(&text)
        && (1..=MAX_BYTES).contains(&text.len())
        && text.bytes().all(is_part)
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric())
        // `auth/user-disabled` is a code, but a longer path is an address.
        && count(|byte| *byte == b'/') <= 1
        && digits <= MAX_DIGITS
        && (digits == text.len() || count(u8::is_ascii_alphabetic) > 0)
        && !text.split(|c: char| !c.is_ascii_alphanumeric()).any(is_id);
    is_named.then_some(text)
}

fn is_id(word: &str) -> bool {
    let is_hex = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    word.bytes().any(|byte| byte.is_ascii_digit())
        && word.len() >= if is_hex { MIN_HEX_ID } else { MIN_TOKEN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_kind_of_error_passes() {
        for code in [
            "outdated-fare",
            "OUTDATED_FARE",
            "card_declined",
            "com.example.OutdatedFare",
            "auth/user-disabled",
            "urn:example:fare",
            "E4221",
            "ORA-01555",
            "42P01",
            "40013",
            "131056",
            "x509v3",
            "InvalidParameterCombinationException",
            "http2-goaway",
            "a",
            "7",
            &"x".repeat(64),
        ] {
            assert_eq!(presentable(code), Some(code));
        }
    }

    #[test]
    fn a_part_counts_from_the_beginning_of_a_word() {
        for (code, is_it) in [
            ("rate_limit_exceeded", true),
            ("userRateLimitExceeded", true),
            ("KMSThrottlingException", true),
            ("SUBSCRIPTION_LOCKED", true),
            ("ratelimited", true),
            ("TURNOVER_RATE_INVALID", false),
            ("EXCHANGE_RATE_LIMIT_BREACHED", false),
            ("TOO_MANY_REQUESTED_ITEMS", false),
            ("CORPORATE_LIMIT", false),
            ("invalid_rate_limit", false),
            ("RateLimitPolicyNotFound", false),
            ("card_decline_rate_limit_exceeded", false),
            ("IP_BLOCKED", false),
            ("AccountLocked", false),
        ] {
            assert_eq!(by_part(code).is_some(), is_it, "{code}");
        }
    }

    #[test]
    fn texts_addresses_ids_and_secrets_do_not_pass() {
        for text in [
            "",
            " ",
            "the fare is outdated",
            "Müller",
            "ann@example.com",
            "+49 170 1234567",
            "0170-1234567",
            "491701234567",
            "1234567",
            "192.168.0.1",
            "10.1.2.3",
            "4.2",
            "2026-11-21T03:12:52Z",
            "20261121",
            "DE89370400440532013000",
            "4111-1111-1111-1111",
            "0b6f1bd4-8d2f-4b58-9d2a-5f1c9c1f0a11",
            "0b6f1bd48d2f4b589d2a5f1c9c1f0a11",
            "a1b2c3de",
            "01ARZ3NDEKTSV4RRFFQ69G5FAV",
            "AKIAIOSFODNN7EXAMPLE",
            "sk_live_51H8xJ2eZvKYlo2C",
            "ghp_xYzAbCdEfGhIjKl1mNoPqRs",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0",
            "dGhpc2lzYXNlY3JldA",
            "dGhpc2lzYXNlY3JldA==",
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "Bearer abc",
            "/users/ann",
            "users/ann/orders",
            "https://example.com/reset?token=abc",
            "a=b",
            "a\nb",
            "\u{1b}[31m",
            "-x",
            "x.",
            "--",
            &"x".repeat(65),
        ] {
            assert_eq!(presentable(text), None, "{text}");
        }
    }

    #[test]
    fn at_its_bounds_a_code_passes_or_not() {
        for (text, passes) in [
            ("x".repeat(63), true),
            ("x".repeat(64), true),
            ("x".repeat(65), false),
            ("12345".to_owned(), true),
            ("123456".to_owned(), true),
            ("1234567".to_owned(), false),
            ("E-123-456".to_owned(), true),
            ("E-123-4567".to_owned(), false),
            ("abcdef1".to_owned(), true),
            ("abcdefa1".to_owned(), false),
            ("abcdefab".to_owned(), true),
            (format!("{}1", "x".repeat(14)), true),
            (format!("{}1", "x".repeat(15)), false),
        ] {
            assert_eq!(presentable(&text).is_some(), passes, "{text}");
        }
    }
}
