//! [`HandleTable`]: the driver's handles of one kind. A value given back is the next one handed
//! out, so that whoever keeps a handle as an identity meets a stranger behind it at once.

/// Distance between two handle values.
const STRIDE: u64 = 16;

/// Objects behind handle values that start at `first`, 16 apart.
#[derive(Debug)]
pub struct HandleTable<T> {
    first: u64,
    rows: Vec<Option<T>>,
    vacant: Vec<usize>,
}

impl<T> HandleTable<T> {
    /// Tables of different kinds start at different values, so that a handle of the wrong kind is
    /// refused.
    pub const fn new(first: u64) -> Self {
        Self { first, rows: Vec::new(), vacant: Vec::new() }
    }

    /// Keeps a row and returns its handle value.
    pub fn insert(&mut self, row: T) -> u64 {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.rows.push(None);
            self.rows.len() - 1
        });
        self.rows[index] = Some(row);
        self.first + index as u64 * STRIDE
    }

    /// The row, whose handle value is the next one out.
    pub fn remove(&mut self, value: u64) -> Option<T> {
        let index = self.index(value)?;
        let row = self.rows.get_mut(index)?.take()?;
        self.vacant.push(index);
        Some(row)
    }

    /// The row behind a handle value.
    pub fn get(&self, value: u64) -> Option<&T> {
        self.rows.get(self.index(value)?)?.as_ref()
    }

    /// The row behind a handle value.
    pub fn get_mut(&mut self, value: u64) -> Option<&mut T> {
        let index = self.index(value)?;
        self.rows.get_mut(index)?.as_mut()
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.rows.iter().flatten()
    }

    /// All handle values.
    pub fn values(&self) -> impl Iterator<Item = u64> {
        let taken = self.rows.iter().enumerate().filter(|(_, row)| row.is_some());
        taken.map(|(index, _)| self.first + index as u64 * STRIDE)
    }

    /// All rows.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.rows.iter_mut().flatten()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len() - self.vacant.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn index(&self, value: u64) -> Option<usize> {
        let offset = value.checked_sub(self.first)?;
        offset.is_multiple_of(STRIDE).then_some((offset / STRIDE) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::HandleTable;

    #[test]
    fn the_value_given_back_last_is_the_next_one_out() {
        let mut table = HandleTable::new(0x100);
        let (a, b, c) = (table.insert('a'), table.insert('b'), table.insert('c'));
        assert_eq!(table.remove(a), Some('a'));
        assert_eq!(table.remove(b), Some('b'));
        assert_eq!(table.remove(b), None);
        assert_eq!(table.insert('d'), b);
        assert_eq!(table.insert('e'), a);
        assert_eq!(
            (table.get(a), table.get(b), table.get(c)),
            (Some(&'e'), Some(&'d'), Some(&'c'))
        );
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn values_that_were_never_given_out_are_nobody() {
        let mut table = HandleTable::new(0x100);
        let a = table.insert('a');
        for value in [0, a - 16, a + 1, a + 16, u64::MAX] {
            assert!(table.get(value).is_none(), "{value:#x}");
            assert!(table.remove(value).is_none(), "{value:#x}");
        }
    }
}
