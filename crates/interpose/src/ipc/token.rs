//! [`Token`]: what stands for memory on its way to another process, `CUipcMemHandle`.

/// What a process gives for memory of its own, and how another finds it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    /// Of the process that gave it.
    pub(crate) process: u32,
    /// Of the socket where that process answers.
    pub(crate) socket: u64,
    /// Known to those alone whom it gave a token.
    pub(crate) secret: [u64; 2],
    /// Which memory.
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

/// As many bytes as CUDA has for a handle. The driver's own are none of these.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; 64]);

/// The first word of each, whose last byte is the version.
const OURS: u64 = u64::from_le_bytes(*b"drystn\xff\x01");

impl Token {
    pub(crate) fn of(named: Named) -> Self {
        let Named { process, socket, secret, number, bytes } = named;
        let words = [OURS, process.into(), socket, secret[0], secret[1], number, bytes, 0];
        let mut token = [0; 64];
        for (to, word) in token.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
        }
        Self(token)
    }

    /// What it says; `None` if it is the driver's.
    pub(crate) fn named(&self) -> Option<Named> {
        let mut words = [0; 8];
        for (word, of) in words.iter_mut().zip(self.0.as_chunks().0) {
            *word = u64::from_le_bytes(*of);
        }
        let [OURS, process, socket, first, second, number, bytes, 0] = words else { return None };
        let process = u32::try_from(process).ok()?;
        Some(Named { process, socket, secret: [first, second], number, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_what_it_was_made_of() {
        let named = Named { process: 7, socket: 1, secret: [2, 3], number: 4, bytes: u64::MAX };
        assert!(Token::of(named).named() == Some(named));
        assert!(Token([0; 64]).named().is_none());
    }
}
