//! The tables of the page: a row for each program, found by its name, read and written in place.
//!
//! Invariant: what is written differs from what was read in figures alone.

use std::collections::BTreeSet;
use std::fmt;

use anyhow::{Result, bail};

use super::figure::is_at_best;

/// How the row begins that counts the rows of all tables: those at best, and those that pass.
const TALLIES: [&str; 2] = ["| at best, or within 5 per cent of it |", "| pass |"];
/// Cells of a row that have what a program came to.
const FIGURES: usize = 6;

/// What a program came to under each allocator.
#[derive(Clone)]
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
        let cells = line.strip_prefix("| `")?.strip_suffix(" |")?.replacen("` | ", " | ", 1);
        let mut cells = cells.split(" | ").map(str::to_owned);
        let (name, right) = (cells.next()?, cells.next()?);
        let came_to: Vec<_> = cells.collect();
        (came_to.len() == FIGURES).then_some(Self { name, right, came_to })
    }
}

/// The head of a table.
pub fn head<const COUNT: usize>(names: [&str; COUNT]) -> String {
    let line = "| --- ".repeat(COUNT + 2);
    format!("| program | at best | {} |\n{line}|", names.join(" | "))
}

/// The page, by lines; those that are rows are read.
pub struct Page(Vec<Result<Row, String>>);

impl Page {
    /// Reads its rows; no program may have two.
    pub fn read(text: &str) -> Result<Self> {
        let page = Self(text.lines().map(|it| Row::read(it).ok_or(it.to_owned())).collect());
        let mut seen = BTreeSet::new();
        if let Some(twice) = page.rows().find(|row| !seen.insert(&row.name)) {
            bail!("the page has {} twice", twice.name);
        }
        Ok(page)
    }

    /// The rows, in their order.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.0.iter().flatten()
    }

    /// A program's row.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows().find(|row| row.name == name)
    }

    /// Puts a row instead of the one of its program.
    pub fn put(&mut self, row: Row) {
        if let Some(old) = self.0.iter_mut().flatten().find(|old| old.name == row.name) {
            *old = row;
        }
    }

    /// The whole page.
    pub fn text(&self) -> String {
        let line = |line: &Result<Row, String>| match line {
            Ok(row) => format!("{row}\n"),
            Err(text) => match TALLIES.iter().find(|tally| text.starts_with(**tally)) {
                Some(tally) => self.tally(tally) + "\n",
                None => format!("{text}\n"),
            },
        };
        self.0.iter().map(line).collect()
    }

    /// How many programs come to the best under each allocator, of those that run there.
    fn tally(&self, head: &str) -> String {
        let of_column = |at: usize| {
            let told = self.rows().filter_map(|row| is_at_best(&row.right, row.came_to.get(at)?));
            let (at_best, others): (Vec<_>, Vec<_>) = told.partition(|&is_at_best| is_at_best);
            format!(" {} of {} |", at_best.len(), at_best.len() + others.len())
        };
        (0..FIGURES).map(of_column).fold(head.to_owned(), |line, cell| line + &cell)
    }
}
