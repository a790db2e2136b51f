//! The table and the summary.

use std::{fs, io, path::Path, time::Duration};

use serde::Serialize;

use crate::{
    backend::Pair,
    compare::Plan,
    sample::Sample,
    stats::{median, percentile},
};

/// What became of one comparison.
#[derive(Debug)]
pub struct Row {
    pub(crate) plan: Plan,
    pub(crate) pair: Pair,
    pub(crate) subject: Figures,
    pub(crate) baseline: Figures,
    /// The median of the pairs' ratios of throughput, the subject's over the baseline's.
    pub(crate) ratio: f64,
    /// All of them, sorted.
    pub(crate) ratios: Vec<f64>,
    /// As the ratio, of the throughput while all callers are busy.
    pub(crate) steady_ratio: f64,
}

/// What the rounds of one side showed.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    throughputs: Vec<f64>,
    latencies: Vec<Duration>,
}

impl Figures {
    pub(crate) fn add(&mut self, sample: Sample) {
        self.throughputs.push(sample.throughput());
        self.latencies.extend(sample.latencies);
    }

    /// Calls per second, and two percentiles of how long one takes, in microseconds.
    fn summary(&mut self) -> (f64, f64, f64) {
        let mut micros = |percent| percentile(&mut self.latencies, percent).as_secs_f64() * 1e6;
        (median(&mut self.throughputs), micros(50), micros(99))
    }
}

/// One entry of the summary. The figures are the subject's; the ratio is its throughput over the baseline's.
#[derive(Serialize)]
struct Entry<'r> {
    workload: &'r str,
    backend: &'r str,
    callers: usize,
    subject: &'r str,
    baseline: &'r str,
    ops_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    ratio: f64,
}

/// Prints the table.
///
/// # Errors
/// If it cannot be written.
pub fn print(rows: &mut [Row], mut out: impl io::Write) -> io::Result<()> {
    let head = ["ops/s", "p50 µs", "p99 µs"];
    writeln!(
        out,
        "{:9} {:17} {:>7} | {:>10} {:>9} {:>10} | {:>10} {:>9} {:>10} | {:>8} (lowest, highest)  steady",
        "workload",
        "backend",
        "callers",
        head[0],
        head[1],
        head[2],
        head[0],
        head[1],
        head[2],
        "ratio"
    )?;
    for row in rows {
        let (ops, p50, p99) = row.subject.summary();
        let (base_ops, base_p50, base_p99) = row.baseline.summary();
        writeln!(
            out,
            "{:9} {:17} {:>7} | {ops:>10.0} {p50:>9.1} {p99:>10.1} | {base_ops:>10.0} \
             {base_p50:>9.1} {base_p99:>10.1} | {:>8.2} {:17} {:>7.2}",
            row.plan.workload.name(),
            row.pair.name,
            row.plan.callers,
            row.ratio,
            range(&row.ratios),
            row.steady_ratio,
        )?;
    }
    writeln!(
        out,
        "first idem, or of a floor the least by hand; then the baseline, which does the same by hand: see the \
         modules of benches/src/baseline\n\
         ratio: the first's operations per second over the baseline's, the median over the pairs of rounds\n\
         steady: the same, but each round counts only until its first caller is done; what is left \
         then is the tail, callers of the baseline that sleep because the file is busy"
    )
}

/// The lowest and the highest of sorted values.
fn range(sorted: &[f64]) -> String {
    match sorted {
        [lowest, .., highest] => format!("({lowest:.2}, {highest:.2})"),
        _ => String::new(),
    }
}

/// Writes the summary as JSON.
///
/// # Errors
/// If it cannot be written.
pub fn write_summary(rows: &mut [Row], file: &Path) -> io::Result<()> {
    let entries = rows.iter_mut().map(|row| {
        let (ops_per_s, p50_us, p99_us) = row.subject.summary();
        Entry {
            workload: row.plan.workload.name(),
            backend: row.pair.name,
            callers: row.plan.callers,
            subject: row.pair.subject_name,
            baseline: row.pair.baseline_name,
            ops_per_s,
            p50_us,
            p99_us,
            ratio: row.ratio,
        }
    });
    fs::write(file, serde_json::to_string_pretty(&entries.collect::<Vec<_>>())?)
}
