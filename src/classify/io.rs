//! Errors of this machine itself: `std::io::Error` and tokio's timer.

use std::error::Error;
use std::io::{self, ErrorKind};

use tokio::time::error::Elapsed;

use crate::failure::{Evidence, Failure, FailureClass};

/// The other side cannot be reached, so nothing was handed over.
const UNREACHABLE: [(ErrorKind, &str); 5] = [
    (ErrorKind::ConnectionRefused, "connection refused"),
    (ErrorKind::NotConnected, "not connected"),
    (ErrorKind::HostUnreachable, "host unreachable"),
    (ErrorKind::NetworkUnreachable, "network unreachable"),
    (ErrorKind::NetworkDown, "network down"),
];
/// A connection that had been open was lost, or the other side does not respond.
const LOST: [(ErrorKind, &str); 5] = [
    (ErrorKind::ConnectionReset, "connection reset"),
    (ErrorKind::ConnectionAborted, "connection aborted"),
    (ErrorKind::BrokenPipe, "connection closed"),
    (ErrorKind::UnexpectedEof, "connection closed early"),
    (ErrorKind::TimedOut, "timed out"),
];
/// Nothing is left here for another connection: no evidence about the other side. By numbers of
/// Unix, since most have no kind.
const EXHAUSTED: [(i32, &str); 3] = [
    (24, "too many open files"),
    (23, "too many open files on this machine"),
    (if cfg!(target_os = "linux") { 105 } else { 55 }, "no buffer space"),
];
/// Other kinds that name a cause in the machine: another attempt may run on another one. The kinds
/// that are left are wrappers, so the error inside them is classified.
const OF_THE_MACHINE: [(ErrorKind, &str); 16] = [
    (ErrorKind::AddrInUse, "address in use"),
    (ErrorKind::WouldBlock, "not ready"),
    (ErrorKind::Interrupted, "interrupted"),
    (ErrorKind::WriteZero, "nothing could be written"),
    (ErrorKind::ResourceBusy, "resource busy"),
    (ErrorKind::ExecutableFileBusy, "executable busy"),
    (ErrorKind::Deadlock, "deadlock"),
    (ErrorKind::StaleNetworkFileHandle, "stale network file handle"),
    (ErrorKind::OutOfMemory, "out of memory"),
    (ErrorKind::StorageFull, "storage full"),
    (ErrorKind::NotFound, "file not found"),
    (ErrorKind::PermissionDenied, "file access denied"),
    (ErrorKind::AlreadyExists, "file exists already"),
    (ErrorKind::ReadOnlyFilesystem, "file system is read-only"),
    (ErrorKind::NotADirectory, "not a directory"),
    (ErrorKind::IsADirectory, "is a directory"),
];

fn find(kind: ErrorKind, table: &[(ErrorKind, &'static str)]) -> Option<&'static str> {
    table.iter().find(|row| row.0 == kind).map(|row| row.1)
}

pub(super) fn io_error(error: &(dyn Error + 'static)) -> Option<Failure> {
    let error = error.downcast_ref::<io::Error>()?;
    let kind = error.kind();
    if let Some(reason) = exhausted(error) {
        return Some(Failure::new(FailureClass::Temporary, Evidence::Connection, reason));
    }
    let temporary = |reason| Failure::new(FailureClass::Temporary, Evidence::Typed, reason);
    if let Some(reason) = find(kind, &UNREACHABLE).or_else(|| find(kind, &LOST)) {
        return Some(temporary(reason).service_down());
    }
    if kind == ErrorKind::QuotaExceeded {
        let reason = "storage quota exceeded";
        return Some(Failure::new(FailureClass::Quota, Evidence::Typed, reason));
    }
    find(kind, &OF_THE_MACHINE).map(temporary)
}

fn exhausted(error: &io::Error) -> Option<&'static str> {
    if error.kind() == ErrorKind::AddrNotAvailable {
        return Some("address not available");
    }
    let number = error.raw_os_error()?;
    EXHAUSTED.iter().find(|row| row.0 == number).map(|row| row.1)
}

/// Whether a request may have been handed over before this error. Unix calls the end of a socket's
/// read timeout `WouldBlock`.
pub(super) fn is_in_doubt(error: &(dyn Error + 'static)) -> bool {
    let is_lost = |kind| kind == ErrorKind::WouldBlock || find(kind, &LOST).is_some();
    error.is::<Elapsed>() || error.downcast_ref::<io::Error>().is_some_and(|io| is_lost(io.kind()))
}

pub(super) fn elapsed(error: &(dyn Error + 'static)) -> Option<Failure> {
    error
        .is::<Elapsed>()
        .then(|| Failure::new(FailureClass::Temporary, Evidence::Typed, "timed out").service_down())
}
