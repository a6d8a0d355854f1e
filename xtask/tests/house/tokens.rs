//! Rust text as tokens, as far as it takes to see who names whom: literals are all alike, and what
//! is compiled for tests alone is left out.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The tokens of a text: words, `::`, single characters, and a quote for each literal.
pub fn tokens(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    add(text.parse().unwrap(), &mut found);
    found
}

fn add(stream: TokenStream, found: &mut Vec<String>) {
    let mut trees = stream.into_iter().peekable();
    while let Some(tree) = trees.next() {
        match (tree, trees.peek()) {
            (TokenTree::Punct(mark), Some(TokenTree::Group(attribute)))
                if mark.as_char() == '#'
                    && attribute.to_string().replace(' ', "") == "[cfg(test)]" =>
            {
                // The item ends with its body, or with its `;`.
                trees.find(|tree| match tree {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    TokenTree::Punct(mark) => mark.as_char() == ';',
                    _ => false,
                });
            }
            (TokenTree::Group(group), _) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                found.push(open.to_owned());
                add(group.stream(), found);
                found.push(close.to_owned());
            }
            (TokenTree::Punct(mark), Some(TokenTree::Punct(next)))
                if (mark.as_char(), next.as_char()) == (':', ':') =>
            {
                trees.next();
                found.push("::".to_owned());
            }
            // It begins the name of a lifetime.
            (TokenTree::Punct(mark), _) if mark.as_char() == '\'' => {}
            (TokenTree::Literal(_), _) => found.push("\"".to_owned()),
            (other, _) => found.push(other.to_string()),
        }
    }
}
