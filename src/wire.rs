//! stub
use crate::state::RetryState;
use std::borrow::Cow;
use std::time::SystemTime;
pub(crate) struct Read<'a> { pub(crate) payload: Cow<'a, str>, pub(crate) origin: Origin }
pub(crate) enum Origin { Fresh { retry_count: u32 }, Ours(RetryState), LaterVersion(u64) }
pub(crate) fn read(body: &str, _cap: u32) -> Read<'_> { Read { payload: Cow::Borrowed(body), origin: Origin::Fresh { retry_count: 0 } } }
/// wrap
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrap {
    /// w
    #[default] WhenNeeded,
    /// n
    Never }
#[derive(Debug)]
pub(crate) struct NotWrappable;
pub(crate) struct Stamped;
pub(crate) struct Timestamp;
impl Timestamp { pub(crate) fn write(&self, _: &mut String, _: SystemTime) {} }
impl Stamped { pub(crate) fn into_parts(self) -> (String, Timestamp) { todo!() } }
pub(crate) fn stamp(_p: &str, _s: &RetryState, _w: Wrap) -> Result<Stamped, NotWrappable> { todo!() }
