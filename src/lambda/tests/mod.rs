//! From the bytes of an event to the batch response.

use super::*;

mod fuzz;
