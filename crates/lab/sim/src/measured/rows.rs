//! [`Rows`]: what the steps of a run have told.

use serde_json::Value;

pub(super) struct Rows<'a> {
    pub(super) steps: &'a [Value],
}

impl<'a> Rows<'a> {
    /// What a step has told, row by row; a step that told one row has it alone.
    pub(super) fn of(&self, step: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        let found = self.steps.iter().find(|one| one["name"] == step);
        let data = found.map_or(&Value::Null, |found| &found["data"]);
        let rows = match data {
            Value::Array(rows) => rows.as_slice(),
            Value::Null => &[],
            one => std::slice::from_ref(one),
        };
        rows.iter()
    }
}
