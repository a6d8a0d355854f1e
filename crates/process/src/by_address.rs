//! What a program holds, each by an address of its own, in order: few at a time, so that moving
//! those behind costs less than a tree, whose code is there again for every type.

/// Things by address.
pub struct ByAddress<T>(Vec<(u64, T)>);

impl<T> ByAddress<T> {
    /// Nothing.
    pub const EMPTY: Self = Self(Vec::new());

    fn place(&self, address: u64) -> Result<usize, usize> {
        self.0.binary_search_by_key(&address, |&(at, _)| at)
    }

    /// What is at an address.
    pub fn get_mut(&mut self, address: u64) -> Option<&mut T> {
        let at = self.place(address).ok()?;
        Some(&mut self.0[at].1)
    }

    /// The last at an address or before.
    #[must_use]
    pub fn last_up_to(&self, address: u64) -> Option<&(u64, T)> {
        let after = self.0.partition_point(|&(at, _)| at <= address);
        self.0[..after].last()
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut (u64, T)> {
        self.0.iter_mut()
    }

    /// Puts one at an address; what was there before.
    pub fn insert(&mut self, address: u64, one: T) -> Option<T> {
        match self.place(address) {
            Ok(at) => Some(std::mem::replace(&mut self.0[at].1, one)),
            Err(at) => {
                self.0.insert(at, (address, one));
                None
            }
        }
    }

    /// Takes out what is at an address.
    pub fn remove(&mut self, address: u64) -> Option<T> {
        let at = self.place(address).ok()?;
        Some(self.0.remove(at).1)
    }
}

#[cfg(test)]
mod tests {
    use super::ByAddress;

    #[test]
    fn each_is_found_by_its_address_in_whatever_order_they_came() {
        let mut all = ByAddress::EMPTY;
        for address in [30, 10, 20] {
            assert_eq!(all.insert(address, address), None);
        }
        assert_eq!(all.insert(20, 21), Some(20));
        assert_eq!(all.get_mut(20), Some(&mut 21));
        assert_eq!(all.get_mut(29), None);
        let last = [9, 10, 29, 99].map(|at| all.last_up_to(at).map(|one| one.0));
        assert_eq!(last, [None, Some(10), Some(20), Some(30)]);
        assert!(all.iter_mut().map(|one| one.0).eq([10, 20, 30]));
        assert_eq!((all.remove(20), all.remove(20)), (Some(21), None));
        assert_eq!(all.last_up_to(29), Some(&(10, 10)));
    }
}
