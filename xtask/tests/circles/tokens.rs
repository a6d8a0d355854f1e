//! Rust text cut into tokens, as far as it takes to see who names whom: comments are left out, and
//! of texts in quotes only the quote is kept.

/// The tokens of a text: words, numbers, `::`, and single characters.
pub fn tokens(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let bytes = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(bytes) = quoted_bytes(rest) {
            found.push("\"");
            bytes
        } else {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let word_bytes = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let bytes = match word_bytes {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                _ => word_bytes,
            };
            // A quote that opens no text begins the name of a lifetime.
            if !first.is_whitespace() && first != '\'' {
                found.push(&rest[..bytes]);
            }
            bytes
        };
        rest = &rest[bytes..];
    }
    found
}

/// Length of the text or character in quotes that a text begins with, if it does.
fn quoted_bytes(text: &str) -> Option<usize> {
    if let Some(inside) = text.strip_prefix('\'') {
        let mut characters = inside.char_indices();
        return match characters.next()? {
            (_, '\\') => Some(3 + inside.get(2..)?.find('\'')? + 1),
            _ => characters.next().filter(|&(_, second)| second == '\'').map(|(at, _)| at + 2),
        };
    }
    let letters = text.len() - text.trim_start_matches(['b', 'c', 'r']).len();
    let marks = text[letters..].len() - text[letters..].trim_start_matches('#').len();
    let open = letters + marks;
    let inside = text[open..].strip_prefix('"').filter(|_| letters <= 2)?;
    if text[..letters].contains('r') {
        let end = format!("\"{}", "#".repeat(marks));
        return Some(open + 1 + inside.find(&end)? + end.len());
    }
    let mut is_escaped = false;
    let end = inside.find(|c| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    })?;
    (marks == 0).then_some(open + end + 2)
}

/// The tokens less every item that is compiled for tests alone.
pub fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let only_tests = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some(&token) = rest.first() {
        if rest.starts_with(&only_tests) {
            rest = &rest[only_tests.len()..];
            rest = &rest[item_tokens(rest)..];
        } else {
            kept.push(token);
            rest = &rest[1..];
        }
    }
    kept
}

/// How many tokens the item has that they begin with: up to its `;` or the end of its body.
fn item_tokens(tokens: &[&str]) -> usize {
    let mut depth = 0_u32;
    for (at, &token) in tokens.iter().enumerate() {
        depth = match token {
            "{" | "(" | "[" => depth + 1,
            "}" | ")" | "]" => depth.saturating_sub(1),
            _ => depth,
        };
        if depth == 0 && matches!(token, ";" | "}") {
            return at + 1;
        }
    }
    tokens.len()
}
