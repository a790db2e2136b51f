//! The expiry index: one entry a batch, with the times from which on its records may be purged, or before.
//!
//! An entry is not touched when a record is replaced or removed before its time, nor when a lease is prolonged: purging
//! looks at each record again, passes over one that stays, and puts off a lease that goes later. So a commit costs the
//! index a part of one write, a renewal nothing, and an entry goes when the last of its times has passed.

use idem_core::{Error, Timestamp};

use crate::names;

/// From that time on the record of that key may go.
pub(crate) type Expiry = (Timestamp, Vec<u8>);

/// An entry of the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// The batch that made it.
    number: u64,
    /// By time, never empty.
    expiries: Vec<Expiry>,
}

impl Group {
    /// The entry of a batch; none if none of its records expires.
    pub(crate) fn new(number: u64, mut expiries: Vec<Expiry>) -> Option<Self> {
        expiries.sort();
        (!expiries.is_empty()).then_some(Self { number, expiries })
    }

    /// Its first time, in an order that bytes have, and its batch.
    pub(crate) fn name(&self) -> Vec<u8> {
        [sortable(self.first()), self.number.to_be_bytes()].concat()
    }

    /// For each record the time, the length of the key, and the key.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, key) in &self.expiries {
            let length = u16::try_from(key.len()).expect("a key is three parts of 255 bytes");
            bytes.extend(sortable(*at));
            bytes.extend(length.to_be_bytes());
            bytes.extend(key);
        }
        bytes
    }

    /// The entry of that name.
    pub(crate) fn from_bytes(name: &[u8], mut bytes: &[u8]) -> Result<Self, Error> {
        let damaged = || names::damaged("an entry of the expiry index makes no sense");
        let mut expiries = Vec::new();
        while !bytes.is_empty() {
            let (expiry, rest) = split(bytes).ok_or_else(damaged)?;
            expiries.push(expiry);
            bytes = rest;
        }
        let number = name.last_chunk().ok_or_else(damaged)?;
        let group = Self::new(u64::from_be_bytes(*number), expiries).ok_or_else(damaged)?;
        if group.name() == name { Ok(group) } else { Err(damaged()) }
    }

    /// Its first time.
    pub(crate) fn first(&self) -> Timestamp {
        self.expiries[0].0
    }

    /// The first of those whose time has come, at most so many, and what is left.
    pub(crate) fn split(mut self, now: Timestamp, limit: usize) -> (Vec<Expiry>, Option<Self>) {
        let due = self.expiries.partition_point(|(at, _)| *at <= now).min(limit);
        let rest = self.expiries.split_off(due);
        (self.expiries, Self::new(self.number, rest))
    }
}

fn split(bytes: &[u8]) -> Option<(Expiry, &[u8])> {
    let (at, bytes) = bytes.split_first_chunk()?;
    let (length, bytes) = bytes.split_first_chunk()?;
    let (key, bytes) = bytes.split_at_checked(u16::from_be_bytes(*length).into())?;
    Some(((unsorted(*at), key.to_vec()), bytes))
}

// The sign bit turned over, negative times come first.
const SIGN: u64 = 1 << 63;

fn sortable(at: Timestamp) -> [u8; 8] {
    (at.as_millis().cast_unsigned() ^ SIGN).to_be_bytes()
}

fn unsorted(bytes: [u8; 8]) -> Timestamp {
    Timestamp::from_millis((u64::from_be_bytes(bytes) ^ SIGN).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn group(number: u64, times: &[i64]) -> Group {
        let expiries = times.iter().map(|time| (at(*time), time.to_string().into_bytes()));
        Group::new(number, expiries.collect()).unwrap()
    }

    #[test]
    fn entries_sort_by_their_first_times() {
        let times = [i64::MIN, -1_000, -1, 0, 1, 255, 256, 1_700_000_000_123, i64::MAX];
        let names: Vec<_> = times.iter().map(|time| group(9, &[*time]).name()).collect();
        assert!(names.is_sorted());
        assert!(group(8, &[5]).name() < group(9, &[7, 5]).name());
    }

    #[test]
    fn an_entry_reads_back_and_damage_shows() {
        assert_eq!(Group::new(1, Vec::new()), None);
        let entry = group(u64::MAX, &[i64::MAX, -7, 0]);
        let (name, bytes) = (entry.name(), entry.to_bytes());
        assert_eq!(Group::from_bytes(&name, &bytes).unwrap(), entry);
        for length in 0..bytes.len() {
            // The first two are whole entries, but only the first is named so.
            let whole = Group::from_bytes(&name, &bytes[..length]);
            assert!(whole.is_err() || whole.unwrap().expiries.len() < 3, "{length}");
        }
        assert!(Group::from_bytes(&name[..7], &bytes).is_err());
        assert!(Group::from_bytes(&name, &bytes[12..]).is_err());
    }

    #[test]
    fn what_is_due_is_split_off_at_its_millisecond() {
        let keys = |expiries: &[Expiry]| expiries.iter().map(|(at, _)| at.as_millis()).collect();
        let split = |now, limit| {
            let (due, rest) = group(1, &[20, 10, 30]).split(at(now), limit);
            let due: Vec<i64> = keys(&due);
            (due, rest.map(|rest| rest.first().as_millis()))
        };
        assert_eq!(split(9, 9), (vec![], Some(10)));
        assert_eq!(split(20, 9), (vec![10, 20], Some(30)));
        assert_eq!(split(20, 1), (vec![10], Some(20)));
        assert_eq!(split(30, 9), (vec![10, 20, 30], None));
        assert_eq!(split(30, 0), (vec![], Some(10)));
    }
}
