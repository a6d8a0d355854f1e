//! The words and marks of a configuration text: `key:value,key:[a:b,c:d]`, blanks ignored.
//!
//! Invariant: every token is a word without blanks and marks, or one of the marks `, : [ ]`.

use super::keys::ConfigError;

/// One token.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'a> {
    Word(&'a str),
    Mark(char),
}

/// The tokens of one text and how far they are read.
pub(super) struct Tokens<'a> {
    items: Vec<Token<'a>>,
    next: usize,
}

const MARKS: [char; 4] = [',', ':', '[', ']'];

/// Splits a text into its tokens.
pub(super) fn tokens(text: &str) -> Tokens<'_> {
    let mut items = Vec::new();
    for piece in text.split_inclusive(|c: char| MARKS.contains(&c) || c.is_ascii_whitespace()) {
        let last =
            piece.chars().next_back().filter(|c| MARKS.contains(c) || c.is_ascii_whitespace());
        let word = match last {
            Some(mark) => &piece[..piece.len() - mark.len_utf8()],
            None => piece,
        };
        if !word.is_empty() {
            items.push(Token::Word(word));
        }
        if let Some(mark) = last.filter(|c| MARKS.contains(c)) {
            items.push(Token::Mark(mark));
        }
    }
    Tokens { items, next: 0 }
}

impl<'a> Tokens<'a> {
    pub(super) fn is_at_end(&self) -> bool {
        self.next == self.items.len()
    }

    fn peek(&self) -> Option<Token<'a>> {
        self.items.get(self.next).copied()
    }

    /// The last word given to `key`, wherever it stands; reads nothing.
    pub(super) fn value_of(&self, key: &str) -> Option<&'a str> {
        self.items.windows(3).rev().find_map(|three| match three {
            [Token::Word(word), Token::Mark(':'), Token::Word(value)] if *word == key => {
                Some(*value)
            }
            _ => None,
        })
    }

    /// The next word; `None` at the end of the text.
    pub(super) fn next_word(
        &mut self,
        expected: &'static str,
    ) -> Result<Option<&'a str>, ConfigError> {
        if self.is_at_end() { Ok(None) } else { self.word(expected).map(Some) }
    }

    /// The next word.
    pub(super) fn word(&mut self, expected: &'static str) -> Result<&'a str, ConfigError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.next += 1;
                Ok(word)
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Goes past `mark` if it comes next.
    pub(super) fn skip(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.next += usize::from(found);
        found
    }

    /// Goes past `mark`, which must come next.
    pub(super) fn expect(&mut self, mark: char) -> Result<(), ConfigError> {
        if self.skip(mark) {
            return Ok(());
        }
        Err(self.unexpected(match mark {
            ':' => "`:`",
            ',' => "`,`",
            _ => "`]`",
        }))
    }

    fn unexpected(&self, expected: &'static str) -> ConfigError {
        let found = match self.peek() {
            Some(Token::Word(word)) => format!("`{word}`"),
            Some(Token::Mark(mark)) => format!("`{mark}`"),
            None => "the end".to_owned(),
        };
        ConfigError::Syntax { expected, found }
    }
}
