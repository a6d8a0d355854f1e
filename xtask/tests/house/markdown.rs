//! Markdown as a reader sees it: paragraphs, list items and cells of tables without code, links
//! with their targets, headings with their anchors.

use std::mem::take;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// What a page holds; lines are counted from 1.
#[derive(Default)]
pub struct Page {
    /// Paragraphs, items of lists and cells of tables, each with the line that it begins on. Code
    /// is `CODE` in them, and targets of links are left out.
    pub prose: Vec<(usize, String)>,
    pub links: Vec<(usize, String)>,
    /// What stands between backquotes.
    pub cited: Vec<(usize, String)>,
    pub anchors: Vec<String>,
}

pub fn read(text: &str) -> Page {
    let mut page = Page::default();
    let (mut begin, mut block, mut is_heading, mut is_code) = (1, String::new(), false, false);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let line = || 1 + text[..range.start].matches('\n').count();
        match event {
            Event::Start(Tag::Heading { .. }) => (block, is_heading) = (String::new(), true),
            Event::End(TagEnd::Heading(_)) => {
                page.anchors.push(anchor(&take(&mut block)));
                is_heading = false;
            }
            Event::Start(Tag::CodeBlock(_)) => is_code = true,
            Event::End(TagEnd::CodeBlock) => is_code = false,
            Event::Start(Tag::Paragraph | Tag::Item | Tag::List(_) | Tag::TableCell)
            | Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell) => {
                let text = take(&mut block);
                page.prose.extend((!text.is_empty()).then_some((begin, text)));
                begin = line();
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push((line(), dest_url.into_string()));
            }
            Event::Code(code) => {
                block.push_str(if is_heading { &code } else { "CODE" });
                page.cited.push((line(), code.into_string()));
            }
            Event::Text(text) if !is_code => block.push_str(&text),
            Event::SoftBreak | Event::HardBreak => block.push(' '),
            _ => {}
        }
    }
    page
}

fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// The sentences of a text, each with whether it asks.
pub fn sentences(text: &str) -> Vec<(String, bool)> {
    let mut found = vec![(String::new(), false)];
    let mut ended = false;
    for word in text.split_whitespace() {
        if ended {
            found.push((String::new(), false));
        }
        ended = word.trim_end_matches([')', '"', '\'']).ends_with(['.', '!', '?']);
        if let Some((sentence, asks)) = found.last_mut() {
            sentence.extend([word, " "]);
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

#[test]
fn pages_are_read_as_readers_see_them() {
    assert_eq!(read("# A b\n```\n# c\n```\n## `x`: y, z").anchors, ["a-b", "x-y-z"]);
    let text = "see [a](b.md#c) and `[d](e)`\n```\n[f](g) `h`\n```\n- i\n  j\n\n| k |\n| --- |\n";
    let page = read(text);
    assert_eq!(page.links, [(1, "b.md#c".to_owned())]);
    assert_eq!(page.cited, [(1, "[d](e)".to_owned())]);
    let prose = ["see a and CODE", "i j", "k"].map(str::to_owned);
    assert_eq!(page.prose, [1, 5, 8].into_iter().zip(prose).collect::<Vec<_>>());
}
