//! Several files in parallel, with results in the order of the files and a progress bar.
//!
//! Invariant: `done` is called once per item, in order, on the calling thread, as early as the
//! order allows. The bar shows itself after a second, on a terminal only.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that takes less time than this shows no bar.
const QUIET: Duration = Duration::from_secs(1);

/// Counts steps of work towards the bar; shared by all workers.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// For `steps` steps in all. Draws nothing where standard error is not a terminal.
    pub fn new(steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, started: Instant::now() }
    }

    pub fn expect_more(&self, steps: u64) {
        self.bar.inc_length(steps);
    }

    /// One step is done; `what` is being worked on.
    pub fn step(&self, what: &str) {
        self.bar.inc(1);
        self.show(what);
    }

    pub fn show(&self, what: &str) {
        self.bar.set_message(what.to_owned());
        self.tick();
    }

    /// Called from time to time while the workers work.
    fn tick(&self) {
        if self.bar.is_hidden() && self.started.elapsed() >= QUIET {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.tick();
    }

    /// Runs `print` with the bar out of the way.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Works through `items` on at most `jobs` threads and hands the results to `done` in order.
pub fn run<T, R>(
    items: &[T],
    jobs: usize,
    progress: &Progress,
    work: impl Fn(&T) -> R + Sync,
    mut done: impl FnMut(usize, R),
) where
    T: Sync,
    R: Send,
{
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, items.len().max(1)) {
            let (sender, next, work) = (sender.clone(), &next, &work);
            scope.spawn(move || {
                while let Some((index, item)) = take(items, next) {
                    if sender.send((index, work(item))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting: Vec<Option<R>> = items.iter().map(|_| None).collect();
        let mut turn = 0;
        loop {
            match receiver.recv_timeout(Duration::from_millis(200)) {
                Ok((index, result)) => waiting[index] = Some(result),
                Err(mpsc::RecvTimeoutError::Timeout) => progress.tick(),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            while let Some(result) = waiting.get_mut(turn).and_then(Option::take) {
                progress.suspend(|| done(turn, result));
                turn += 1;
            }
        }
    });
}

fn take<'a, T>(items: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    Some((index, items.get(index)?))
}

#[cfg(test)]
mod tests {
    use super::{Progress, run};

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..40).collect();
        let mut seen = Vec::new();
        let slow_first = |item: &u64| {
            std::thread::sleep(std::time::Duration::from_micros(400 - item * 10));
            item * item
        };
        run(&items, 8, &Progress::new(40), slow_first, |index, result| seen.push((index, result)));
        assert_eq!(seen.len(), 40);
        assert!(seen.iter().enumerate().all(|(i, s)| *s == (i, (i * i) as u64)));
    }

    #[test]
    fn nothing_to_do_is_done_at_once() {
        run(&[], 4, &Progress::new(0), |_: &u8| (), |_, ()| panic!("no result expected"));
    }
}
