//! [`Current`]: a context made current for the calling thread, and the one before restored.

use crate::calls::{Context, Cuda};
use crate::failure::Failure;
use crate::process;

/// Restores the context that was current before. Where that was this one, entering costs one look
/// and leaving nothing.
pub(crate) struct Current<'a> {
    cuda: &'a Cuda,
    /// What to restore, if it was another: perhaps no context.
    before: Option<Option<Context>>,
}

impl<'a> Current<'a> {
    #[inline]
    pub(crate) fn enter(cuda: &'a Cuda, context: Context) -> Result<Self, Failure> {
        let before = cuda.current_context()?;
        if before == Some(context) {
            return Ok(Self { cuda, before: None });
        }
        cuda.set_current_context(Some(context))?;
        Ok(Self { cuda, before: Some(before) })
    }
}

impl Drop for Current<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(before) = self.before
            && process::check().is_ok()
        {
            // It was current a moment ago: refused only if it was destroyed meanwhile, and then
            // nobody misses it.
            let _ = self.cuda.set_current_context(before);
        }
    }
}
