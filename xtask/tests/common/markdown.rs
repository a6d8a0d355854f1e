//! Markdown as a reader sees it: paragraphs, list items and cells of tables without code, links
//! with their targets, headings with their anchors.

/// A piece of prose, and the line that it begins on.
pub struct Piece {
    /// From 1.
    pub line: usize,
    /// Without code and without targets of links.
    pub text: String,
}

/// Every line with its number from 1; those of fenced code are empty.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().map(move |(at, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (at + 1, if is_code || is_fence { "" } else { line })
    })
}

/// The prose of a page: paragraphs, items of lists and cells of tables; headings and code are none.
pub fn prose(text: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut is_open = false;
    for (line, raw) in lines(text) {
        let is_code = raw.starts_with("    ") && !is_open;
        let trimmed = raw.trim();
        if trimmed.starts_with('|') {
            is_open = false;
            let cells = trimmed.trim_matches('|').split('|').map(plain);
            pieces.extend(cells.map(|text| Piece { line, text }));
        } else if trimmed.is_empty() || trimmed.starts_with('#') || is_code {
            is_open = false;
        } else {
            let item = trimmed.strip_prefix("- ").or_else(|| numbered(trimmed));
            let rest = item.unwrap_or(trimmed);
            match pieces.last_mut() {
                Some(last) if is_open && item.is_none() => {
                    last.text.push(' ');
                    last.text.push_str(rest);
                }
                _ => pieces.push(Piece { line, text: rest.to_owned() }),
            }
            is_open = true;
        }
    }
    for piece in &mut pieces {
        piece.text = plain(&piece.text);
    }
    pieces
}

/// The rest of an item that begins with a number.
fn numbered(line: &str) -> Option<&str> {
    let (number, rest) = line.split_once(". ")?;
    number.parse::<u32>().ok().map(|_| rest)
}

/// A text without code, emphasis and targets of links.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    for (at, part) in text.split('`').enumerate() {
        plain.push_str(if at % 2 == 0 { part } else { "CODE" });
    }
    let mut rest = plain.as_str();
    let mut without = String::new();
    while let Some((before, after)) = rest.split_once("](") {
        without.push_str(before);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    without.push_str(rest);
    without.replace(['*', '_', '[', ']'], "").trim().to_owned()
}

/// The sentences of a piece, without their ends, each with whether it asks.
pub fn sentences(text: &str) -> Vec<(String, bool)> {
    let mut found = vec![(String::new(), false)];
    let mut ended = false;
    for word in text.split_whitespace() {
        if ended {
            found.push((String::new(), false));
        }
        ended = word.trim_end_matches([')', '"', '\'']).ends_with(['.', '!', '?']);
        if let Some((sentence, asks)) = found.last_mut() {
            sentence.push_str(word);
            sentence.push(' ');
            *asks = word.contains('?');
        }
    }
    found
}

/// The words of a text in lower case, without signs.
pub fn words(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_alphabetic() && c != '\'');
    parts.filter(|part| !part.is_empty()).map(str::to_lowercase).collect()
}

/// The targets of a page's links, with the line that each stands on.
pub fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, raw) in lines(text) {
        // What stands in code is no link.
        let shown: String = raw.split('`').step_by(2).collect::<Vec<_>>().join("`");
        let targets = shown.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(targets.map(|(target, _)| (line, target.to_owned())));
    }
    found
}

/// The anchors of a page's headings.
pub fn anchors(text: &str) -> Vec<String> {
    let headings = lines(text).filter_map(|(_, line)| line.starts_with('#').then_some(line));
    let slug = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}
