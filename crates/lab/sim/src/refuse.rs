//! How a call ends that is refused.

use drystone_driver::ErrorCode;

/// Ends a call with an error where something is wrong.
pub(crate) fn refuse(code: ErrorCode, is_wrong: bool) -> Result<(), ErrorCode> {
    if is_wrong { Err(code) } else { Ok(()) }
}
