//! What surrounds every exported function: no panic crosses into C (P5).

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::last_error;
use crate::status::{Failure, Status};

/// Runs the body of an exported function. A panic becomes the fallback and an error.
///
/// What the body shares with other calls is behind locks that a panic releases, or atomic.
#[inline]
pub fn barrier<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|payload| {
        contain(payload);
        fallback
    })
}

/// The same for a function that returns a status: a failure is kept as the thread's last error.
#[inline]
pub fn answer(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    barrier(Status::Internal, || match body() {
        Ok(()) => Status::Ok,
        Err(failure) => {
            last_error::set(&failure);
            failure.status
        }
    })
}

#[cold]
fn contain(payload: Box<dyn std::any::Any + Send>) {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let message = format!("defect of the library: {}", text.unwrap_or("no message"));
    last_error::set(&Failure::new(Status::Internal, message));
    // A payload that panics when dropped would get out.
    std::mem::forget(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_a_panic_becomes_a_status_and_a_message() {
        assert_eq!(answer(|| panic!("of {}", "words")), Status::Internal);
        assert_eq!(last_error::status(), Status::Internal);
        // SAFETY: the message is a C string that lives until this thread's next failure.
        let text = unsafe { std::ffi::CStr::from_ptr(last_error::message()) };
        assert_eq!(text, c"defect of the library: of words");
        assert_eq!(barrier(7, || panic!("plain")), 7);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let failure = Failure::new(Status::FileError, "é".repeat(900));
        assert_eq!(answer(|| Err(failure)), Status::FileError);
        // SAFETY: as above.
        let text = unsafe { std::ffi::CStr::from_ptr(last_error::message()) };
        assert_eq!(text.to_str().map(str::len), Ok(1022));
    }
}
