//! Errors of this machine itself: `std::io::Error` and tokio's timer.

use std::error::Error;
use std::io::{self, ErrorKind};

use crate::failure::{Evidence, Failure, FailureClass};

/// Kinds that name a cause. The others (`Other`, `InvalidData`, …) are wrappers, so the error
/// inside them is classified.
const KINDS: [(ErrorKind, FailureClass, &str); 28] = {
    use FailureClass::{Quota, Temporary};
    [
        (ErrorKind::ConnectionRefused, Temporary, "connection refused"),
        (ErrorKind::ConnectionReset, Temporary, "connection reset"),
        (ErrorKind::ConnectionAborted, Temporary, "connection aborted"),
        (ErrorKind::NotConnected, Temporary, "not connected"),
        (ErrorKind::BrokenPipe, Temporary, "connection closed"),
        (ErrorKind::UnexpectedEof, Temporary, "connection closed early"),
        (ErrorKind::TimedOut, Temporary, "timed out"),
        (ErrorKind::HostUnreachable, Temporary, "host unreachable"),
        (ErrorKind::NetworkUnreachable, Temporary, "network unreachable"),
        (ErrorKind::NetworkDown, Temporary, "network down"),
        (ErrorKind::AddrInUse, Temporary, "address in use"),
        (ErrorKind::AddrNotAvailable, Temporary, "address not available"),
        (ErrorKind::WouldBlock, Temporary, "not ready"),
        (ErrorKind::Interrupted, Temporary, "interrupted"),
        (ErrorKind::WriteZero, Temporary, "nothing could be written"),
        (ErrorKind::ResourceBusy, Temporary, "resource busy"),
        (ErrorKind::ExecutableFileBusy, Temporary, "executable busy"),
        (ErrorKind::Deadlock, Temporary, "deadlock"),
        (ErrorKind::StaleNetworkFileHandle, Temporary, "stale network file handle"),
        (ErrorKind::OutOfMemory, Temporary, "out of memory"),
        (ErrorKind::StorageFull, Temporary, "storage full"),
        (ErrorKind::QuotaExceeded, Quota, "storage quota exceeded"),
        // These causes lie in the machine or its setup, not in the message. Another attempt may run
        // on another machine.
        (ErrorKind::NotFound, Temporary, "file not found"),
        (ErrorKind::PermissionDenied, Temporary, "file access denied"),
        (ErrorKind::AlreadyExists, Temporary, "file exists already"),
        (ErrorKind::ReadOnlyFilesystem, Temporary, "file system is read-only"),
        (ErrorKind::NotADirectory, Temporary, "not a directory"),
        (ErrorKind::IsADirectory, Temporary, "is a directory"),
    ]
};

/// Kinds that say that the other side cannot be reached or does not respond.
const OF_THE_CONNECTION: [ErrorKind; 10] = [
    ErrorKind::ConnectionRefused,
    ErrorKind::ConnectionReset,
    ErrorKind::ConnectionAborted,
    ErrorKind::NotConnected,
    ErrorKind::BrokenPipe,
    ErrorKind::UnexpectedEof,
    ErrorKind::TimedOut,
    ErrorKind::HostUnreachable,
    ErrorKind::NetworkUnreachable,
    ErrorKind::NetworkDown,
];

pub(super) fn io_error(error: &(dyn Error + 'static)) -> Option<Failure> {
    let kind = error.downcast_ref::<io::Error>()?.kind();
    let (_, class, reason) = KINDS.iter().find(|row| row.0 == kind)?;
    let failure = Failure::new(*class, Evidence::Typed, reason);
    Some(if OF_THE_CONNECTION.contains(&kind) { failure.service_down() } else { failure })
}

pub(super) fn elapsed(error: &(dyn Error + 'static)) -> Option<Failure> {
    error
        .is::<tokio::time::error::Elapsed>()
        .then(|| Failure::new(FailureClass::Temporary, Evidence::Typed, "timed out").service_down())
}
