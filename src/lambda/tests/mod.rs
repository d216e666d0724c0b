//! From the bytes of an event to the batch response.

use super::*;

mod fuzz;

#[test]
fn only_a_deadline_that_an_invocation_can_have_counts() {
    const NOW: u64 = 1_795_000_000_000;
    let secs = Duration::from_secs;
    for (deadline, left, what) in [
        (0, None, "an emulator that names none"),
        (600_000, None, "cargo lambda watch"),
        (NOW + 300_000, Some(secs(300)), "Lambda, aws-lambda-rie and sam local"),
        (NOW + 1, Some(Duration::from_millis(1)), "the last moment"),
        (NOW, Some(Duration::ZERO), "over"),
        (NOW - 1, Some(Duration::ZERO), "over"),
        (NOW - 120_000, Some(Duration::ZERO), "over: the process was stopped for two minutes"),
        (NOW - 5_400_000, Some(Duration::ZERO), "the longest that an invocation can have waited"),
        (NOW - 5_400_001, None, "no function runs for so long"),
        (NOW + 900_000, Some(secs(900)), "the longest function, but for Managed Instances"),
        (NOW + 900_001, Some(Duration::from_millis(900_001)), "Managed Instances"),
        (NOW + 3_600_000, Some(secs(3_600)), "aws-lambda-rie with a timeout of an hour"),
        (NOW + 5_399_999, Some(Duration::from_millis(5_399_999)), "the longest function"),
        (NOW + 5_400_000, Some(secs(5_400)), "the longest function"),
        (NOW + 5_400_001, Some(secs(5_400)), "a clock that is slow"),
        (NOW + 5_460_000, Some(secs(5_400)), "a clock that is slow"),
        (NOW + 5_460_001, None, "no clock is so slow"),
        (NOW + 7_200_000, None, "aws-lambda-rie with AWS_LAMBDA_FUNCTION_TIMEOUT=7200"),
        (NOW / 1_000, None, "seconds for milliseconds"),
        (NOW * 1_000_000, None, "nanoseconds for milliseconds"),
        (u64::MAX, None, "no time of any clock"),
    ] {
        assert_eq!(time_left(deadline, from_epoch_millis(NOW)), left, "{deadline}: {what}");
    }
}
