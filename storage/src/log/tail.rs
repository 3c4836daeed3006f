//! What the log keeps in memory: its newest entries, and an account of where its bytes lie. Pure.

use std::collections::VecDeque;

use bytes::Bytes;

/// The newest entries, consecutive, bounded by their bytes: leader and applier read right after the append.
#[derive(Debug)]
pub(super) struct Tail {
    entries: VecDeque<Bytes>,
    /// Index of the first one; meaningless while there is none.
    first: u64,
    bytes: usize,
    max_bytes: usize,
}

impl Tail {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { entries: VecDeque::new(), first: 0, bytes: 0, max_bytes }
    }

    /// Adds the entry `index`, which follows the newest one here or begins anew.
    pub(super) fn push(&mut self, index: u64, payload: Bytes) {
        if self.entries.is_empty() {
            self.first = index;
        }
        self.bytes += cost(&payload);
        self.entries.push_back(payload);
        while self.bytes > self.max_bytes {
            self.pop_front();
        }
    }

    /// Index of the oldest entry held.
    pub(super) fn first(&self) -> Option<u64> {
        (!self.entries.is_empty()).then_some(self.first)
    }

    /// The entry `index`.
    pub(super) fn get(&self, index: u64) -> Option<&Bytes> {
        self.entries.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn purge(&mut self, upto: u64) {
        while !self.entries.is_empty() && self.first <= upto {
            self.pop_front();
        }
    }

    /// Drops all entries from `index` on.
    pub(super) fn truncate(&mut self, index: u64) {
        while !self.entries.is_empty() && self.first + self.entries.len() as u64 > index {
            if let Some(payload) = self.entries.pop_back() {
                self.bytes -= cost(&payload);
            }
        }
    }

    fn pop_front(&mut self) {
        if let Some(payload) = self.entries.pop_front() {
            self.bytes -= cost(&payload);
            self.first += 1;
        }
    }
}

/// Payload plus handle, so that a million empty entries are not free.
fn cost(payload: &Bytes) -> usize {
    payload.len() + size_of::<Bytes>()
}

/// After so many bytes a new step of the account begins.
const STEP_BYTES: u64 = 1 << 20;

#[derive(Debug)]
struct Step {
    first: u64,
    last: u64,
    bytes: u64,
}

impl Step {
    fn count(&self) -> u64 {
        self.last - self.first + 1
    }

    fn share(&self, entries: u64) -> u64 {
        (u128::from(self.bytes) * u128::from(entries) / u128::from(self.count())) as u64
    }
}

/// How many bytes the entries take, in steps of a MiB, even within a step. One step per MiB of log bounds its size.
#[derive(Debug, Default)]
pub(super) struct Account {
    steps: VecDeque<Step>,
    total: u64,
}

impl Account {
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Adds `bytes` for the consecutive entries `first..=last` behind the newest.
    pub(super) fn add(&mut self, first: u64, last: u64, bytes: u64) {
        self.total += bytes;
        match self.steps.back_mut() {
            Some(step) if step.bytes < STEP_BYTES => {
                step.last = last;
                step.bytes += bytes;
            }
            _ => self.steps.push_back(Step { first, last, bytes }),
        }
    }

    pub(super) fn purge(&mut self, upto: u64) {
        while let Some(step) = self.steps.front_mut() {
            if step.last <= upto {
                self.total -= step.bytes;
                self.steps.pop_front();
                continue;
            }
            if step.first <= upto {
                let gone = step.share(upto + 1 - step.first);
                step.bytes -= gone;
                step.first = upto + 1;
                self.total -= gone;
            }
            return;
        }
    }

    /// Drops all entries from `index` on.
    pub(super) fn truncate(&mut self, index: u64) {
        while let Some(step) = self.steps.back_mut() {
            if step.first >= index {
                self.total -= step.bytes;
                self.steps.pop_back();
                continue;
            }
            if step.last >= index {
                let gone = step.share(step.last + 1 - index);
                step.bytes -= gone;
                step.last = index - 1;
                self.total -= gone;
            }
            return;
        }
    }

    /// The greatest index that can be purged so that about `keep` bytes stay.
    pub(super) fn purgeable(&self, keep: u64) -> Option<u64> {
        let mut excess = self.total.checked_sub(keep).filter(|&excess| excess > 0)?;
        let mut upto = None;
        for step in &self.steps {
            if step.bytes <= excess {
                excess -= step.bytes;
                upto = Some(step.last);
            } else {
                let entries = u128::from(excess) * u128::from(step.count()) / u128::from(step.bytes);
                return if entries == 0 { upto } else { Some(step.first + entries as u64 - 1) };
            }
        }
        upto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_holds_the_newest_within_its_bytes() {
        let each = 100 + size_of::<Bytes>();
        let mut tail = Tail::new(3 * each);
        for index in 5..10 {
            tail.push(index, Bytes::from(vec![index as u8; 100]));
        }
        assert_eq!(tail.first(), Some(7));
        assert_eq!(tail.get(6), None);
        assert_eq!(tail.get(9).unwrap()[0], 9);
        assert_eq!(tail.get(10), None);
        tail.truncate(9);
        assert_eq!((tail.get(8).is_some(), tail.get(9)), (true, None));
        tail.purge(7);
        assert_eq!(tail.first(), Some(8));
        tail.purge(100);
        assert_eq!(tail.first(), None);
        tail.push(200, Bytes::from_static(b"x"));
        assert_eq!(tail.get(200).unwrap(), "x");
        tail.push(201, Bytes::from(vec![0; 10 * each]));
        assert_eq!(tail.first(), None, "an entry larger than the bound is not held");
    }

    #[test]
    fn the_account_follows_purges_and_truncations() {
        let mut account = Account::default();
        account.add(1, 100, 100 << 20);
        account.add(101, 101, 1 << 20);
        assert_eq!(account.total(), 101 << 20);
        assert_eq!(account.purgeable(200 << 20), None);
        assert_eq!(account.purgeable(51 << 20), Some(50));
        assert_eq!(account.purgeable(0), Some(101));
        account.purge(50);
        assert_eq!(account.total(), 51 << 20);
        account.truncate(91);
        assert_eq!(account.total(), 40 << 20);
        account.truncate(0);
        assert_eq!((account.total(), account.purgeable(0)), (0, None));
    }
}
