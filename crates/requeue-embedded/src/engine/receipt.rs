//! Receipt handles. Each holds the queue, the message and the number of the receive, so that none
//! must be remembered.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::groups::Key;

/// The content of a receipt handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) instance: u64,
    pub(crate) key: Key,
    pub(crate) number: u64,
}

impl Receipt {
    pub(crate) fn to_handle(self) -> String {
        STANDARD.encode(format!("requeue {} {} {}", self.instance, self.key, self.number))
    }

    pub(crate) fn from_handle(handle: &str) -> Option<Self> {
        let text = String::from_utf8(STANDARD.decode(handle).ok()?).ok()?;
        let mut words = text.strip_prefix("requeue ")?.split(' ').map(str::parse);
        let mut next = || words.next()?.ok();
        Some(Self { instance: next()?, key: next()?, number: next()? })
    }
}
