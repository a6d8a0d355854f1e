//! The tables of the page: a row for each program, found by its name, read and written in place.
//!
//! Invariant: what is written differs from what was read in figures alone.

use std::fmt;

use anyhow::{Result, bail};

use super::figure::is_at_best;

/// How the row begins that counts the rows of all tables: those at best, and those that pass.
const TALLIES: [&str; 2] = ["| at best, or within 5 per cent of it |", "| pass |"];
/// Cells of a row that have what a program came to.
const FIGURES: usize = 6;

/// What a program came to under each allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Of the program, without `.py`.
    pub name: String,
    /// What it would come to at best.
    pub right: String,
    /// What it came to, in the order of the allocators.
    pub came_to: Vec<String>,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| `{}` | {} | {} |", self.name, self.right, self.came_to.join(" | "))
    }
}

impl Row {
    /// The row that a line is, if it is one.
    fn read(line: &str) -> Option<Self> {
        let cells = line.strip_prefix("| `")?.strip_suffix(" |")?;
        let (name, cells) = cells.split_once("` | ")?;
        let mut cells = cells.split(" | ").map(str::to_owned);
        let right = cells.next()?;
        let came_to: Vec<_> = cells.collect();
        (came_to.len() == FIGURES).then(|| Self { name: name.to_owned(), right, came_to })
    }
}

/// The head of a table.
pub fn head<const COUNT: usize>(names: [&str; COUNT]) -> String {
    let line = "| --- ".repeat(COUNT + 2);
    format!("| program | at best | {} |\n{line}|", names.join(" | "))
}

/// The page, by lines.
pub struct Page {
    lines: Vec<(String, Option<Row>)>,
}

impl Page {
    /// Reads its rows; no program may have two.
    pub fn read(text: &str) -> Result<Self> {
        let lines = text.lines().map(|line| (line.to_owned(), Row::read(line)));
        let page = Self { lines: lines.collect() };
        let mut names = page.names();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("the page has {} twice", twice[0]);
        }
        Ok(page)
    }

    /// The programs, in their order.
    pub fn names(&self) -> Vec<String> {
        self.rows().map(|row| row.name.clone()).collect()
    }

    /// A program's row.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows().find(|row| row.name == name)
    }

    /// Puts a row instead of the one of its program.
    pub fn put(&mut self, row: Row) {
        let old = self
            .lines
            .iter_mut()
            .find(|(_, old)| old.as_ref().is_some_and(|old| old.name == row.name));
        if let Some(old) = old {
            *old = (row.to_string(), Some(row));
        }
    }

    /// The whole page.
    pub fn text(&self) -> String {
        let line = |line: &str| {
            let tally = TALLIES.iter().find(|tally| line.starts_with(**tally));
            tally.map_or_else(|| line.to_owned(), |tally| self.tally(tally))
        };
        self.lines.iter().map(|(text, _)| line(text) + "\n").collect()
    }

    /// How many programs come to the best under each allocator, of those that run there.
    fn tally(&self, head: &str) -> String {
        let mut tally = head.to_owned();
        for at in 0..FIGURES {
            let told = self.rows().filter_map(|row| is_at_best(&row.right, row.came_to.get(at)?));
            let told: Vec<bool> = told.collect();
            let at_best = told.iter().filter(|&&is_at_best| is_at_best).count();
            tally.push_str(&format!(" {at_best} of {} |", told.len()));
        }
        tally
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.lines.iter().filter_map(|(_, row)| row.as_ref())
    }
}
