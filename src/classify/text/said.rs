//! Words that decide whatever the code or the type.

use crate::failure::FailureClass;

pub(in crate::classify) const TOO_LARGE: &str = "request too large";
/// Words that decide whatever the code or the type, with their status, or with any (0). The first row
/// that matches wins.
pub(super) const SAID: [(u16, FailureClass, &str); 11] = {
    use FailureClass::{NonRetryable, Quota, RateLimit, Temporary};
    [
        // OpenAI, Groq: one request above the tokens of a minute
        (0, NonRetryable, TOO_LARGE),
        // The account of DeepSeek, Replicate, Hugging Face, Vonage, Supabase lacks it
        (
            402,
            Quota,
            "credits|insufficient credit|insufficient balance|low balance|quota|spending limit",
        ),
        // Moonshot; Z.ai; a balance that is used up, instead of the calls of a minute
        (
            429,
            Quota,
            "insufficient balance|insufficient account balance|balance is insufficient|\
            insufficient credit|insufficient credits|not enough credits|out of credits|\
            balance is too low|low balance|negative balance|please recharge|recharge your account",
        ),
        // Anthropic; xAI; Fireworks; Postmark; Neon; Upstash; Kubernetes; Azure; SES; Elasticsearch;
        // Tavily
        (
            0,
            Quota,
            "your credit balance is too low|your specified api usage limits|\
            reached its monthly spending limit|reaching the monthly spending limit|\
            account has run out of credits|compute time quota|max daily request limit exceeded|\
            is forbidden exceeded quota|results in exceeding approved|sending paused for this account|\
            maximum shards open|maximum normal shards open|maximum frozen shards open|\
            exceeds your plan s set usage limit|exceeds the pay as you go limit",
        ),
        // Zoho; Canada Post
        (0, RateLimit, "made too many requests continuously|rejected by slm monitor"),
        // fal; OpenRouter
        (403, Quota, "exhausted balance|key limit exceeded"),
        // Lark
        (400, RateLimit, "triggers the frequency limit|trigger frequency limit"),
        // GitHub, openstax and Canvas, by their text alone
        (403, RateLimit, LIMITED),
        (422, RateLimit, LIMITED),
        // Google; Hetzner; Sinch; Twilio; many, of which an earlier attempt still runs
        (
            409,
            Temporary,
            "please retry|retry the request|retry later|concurrent policy changes|\
            conflicting resource update is in progress|being processed|still in progress|already in progress|\
            currently in progress|in progress request|still processing|already processing|\
            concurrent request|concurrent requests",
        ),
        // Salesforce; Business Central; Razorpay; Stripe; Adyen
        (
            0,
            Temporary,
            "unable to lock row|currently locked by another user|\
            another payment operation is in progress|in progress request using this|\
            already processed or in progress",
        ),
    ]
};
/// A 403 of something else may mention a limit.
const LIMITED: &str = "\
    secondary rate limit|api rate limit exceeded|api rate limit reached|\
    403 forbidden rate limit exceeded|abuse detection mechanism|submitted too quickly|\
    being rate limited|been rate limited|exceeded the rate limit|exceeded your rate limit|\
    rate limit has been exceeded|too many requests";
/// Words of an earlier attempt that still runs, next to the name of its key: `idempotency`.
pub(super) const IN_PROGRESS: &str = "\
    in progress|inprogress|already processing|still processing|being processed|\
    still going through|still running|in flight|concurrent|simultaneous|simultaneously|\
    key in use|currently in use";
/// Words of a card that was declined: Stripe, Razorpay. Its limits are the payer's.
pub(in crate::classify) const DECLINED: &str = "\
    type card error|source customer|source issuer|card declined|card was declined|\
    card has been declined|card decline rate limit exceeded";
/// Words of a payer whose balance it is, instead of the account's.
pub(super) const PAYER: &str = "\
    card was|card has|card is|this card|cardholder|payer|the customer|customer s";
