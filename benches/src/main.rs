//! `compare`: idem against hand-written code, in pairs of rounds.

use std::io;

use clap::{Parser, Subcommand, builder::RangedU64ValueParser};
use idem_benches::{Backend, Plan, Row, Workload, compare, print, target, write_summary};
use idem_core::BoxError;

/// Measures idem against hand-written code that does the same.
#[derive(Parser)]
#[command(name = "idem-benches")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs pairs of rounds, prints a table and writes `idem-bench/summary.json` in the target folder.
    Compare {
        /// Only this backend.
        #[arg(long)]
        backend: Option<Backend>,
        /// Only this workload.
        #[arg(long)]
        workload: Option<Workload>,
        /// So many callers at once, instead of a few counts per workload.
        #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..=4096))]
        callers: Option<usize>,
    },
}

fn main() -> Result<(), BoxError> {
    let Command::Compare { backend, workload, callers } = Arguments::parse().command;
    let mut rows = Vec::new();
    let plans = plans(backend, workload, callers);
    for (index, &plan) in plans.iter().enumerate() {
        rows.push(run(plan, index + 1, plans.len())?);
    }
    print(&mut rows, io::stdout())?;
    let file = target()?.join("summary.json");
    write_summary(&mut rows, &file)?;
    eprintln!("written: {}", file.display());
    Ok(())
}

fn run(plan: Plan, index: usize, count: usize) -> Result<Row, BoxError> {
    let (name, backend) = (plan.workload.name(), plan.backend.pair().name);
    let what = format!("[{index}/{count}] {name} on {backend}, callers: {}", plan.callers);
    compare(plan, |progress| eprintln!("{what}: {progress}"))
        .map_err(|error| format!("{what}: {error}").into())
}

fn plans(only: Option<Backend>, workload: Option<Workload>, callers: Option<usize>) -> Vec<Plan> {
    let mut plans = Vec::new();
    for workload in Workload::ALL.into_iter().filter(|w| workload.is_none_or(|only| only == *w)) {
        for backend in Backend::ALL.into_iter().filter(|b| only.is_none_or(|only| only == *b)) {
            // A floor only if it is asked for.
            let is_asked = !backend.is_floor() || only == Some(backend);
            if !is_asked || !backend.does(workload) {
                continue;
            }
            let counts = callers.as_ref().map_or(workload.callers(), std::slice::from_ref);
            plans.extend(counts.iter().map(|&callers| Plan { workload, backend, callers }));
        }
    }
    plans
}
