//! Percentiles and medians.

use std::time::Duration;

/// The `percent`-th percentile by the nearest rank: the smallest value that is not below so many of them.
/// Zero if there are none. Sorts the values.
pub(crate) fn percentile(values: &mut [Duration], percent: usize) -> Duration {
    values.sort_unstable();
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied().unwrap_or_default()
}

/// The middle value, or the mean of the two in the middle. NaN if there are none. Sorts the values.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values {
        [] => f64::NAN,
        values if values.len().is_multiple_of(2) => {
            f64::midpoint(values[middle - 1], values[middle])
        }
        values => values[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(values: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        values.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_by_the_nearest_rank() {
        let mut hundred = millis((1..=100).rev());
        for (percent, expected) in [(1, 1), (50, 50), (99, 99), (100, 100)] {
            assert_eq!(percentile(&mut hundred, percent), Duration::from_millis(expected));
        }
        let mut four = millis([40, 10, 30, 20]);
        for (percent, expected) in [(0, 10), (25, 10), (26, 20), (50, 20), (51, 30), (99, 40)] {
            assert_eq!(percentile(&mut four, percent), Duration::from_millis(expected));
        }
        assert_eq!(percentile(&mut millis([7]), 50), Duration::from_millis(7));
        assert_eq!(percentile(&mut [], 50), Duration::ZERO);
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), 2.5);
        assert_eq!(median(&mut [8.0]), 8.0);
        assert!(median(&mut []).is_nan());
    }
}
