//! Bodies for benchmarks.

use std::fmt::Write as _;

/// A JSON object of about this size, with many fields.
pub fn object(size: usize) -> String {
    let mut text = String::from("{\"orderId\":\"A-1\"");
    for n in 0.. {
        if text.len() >= size {
            break;
        }
        write!(text, ",\"line{n}\":{{\"sku\":\"X-{n}\",\"quantity\":{n}}}")
            .expect("a string takes everything");
    }
    text + "}"
}
