//! Aligned text tables. Invariant: the first column is left-aligned, all others right-aligned, and
//! a line never ends in a space.

#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|&head| head.to_owned()).collect()] }
    }

    /// Appends a row; missing cells at its end stay empty.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text, indented, with a newline after every row.
    pub fn render(&self, indent: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                if column == 0 {
                    line.extend([cell, pad.as_str()]);
                } else {
                    line.extend(["  ", pad.as_str(), cell]);
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up_by_characters_not_bytes() {
        let mut table = Table::new(&["name", "count", "note"]);
        table.row(vec!["a".into(), "1\u{2009}000".into(), "x".into()]);
        table.row(vec!["longer name".into(), "7".into()]);
        let expected = "  name         count  note\n  a            1\u{2009}000     x\n  \
                        longer name      7\n";
        assert_eq!(table.render("  "), expected);
    }
}
