//! One group per workload, with the backends and the baselines side by side.

use std::time::Duration;

use criterion::{
    BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime,
};
use idem_benches::{Backend, Load, Open, Workload, measure};

/// The most keys in one round: more of them would only fill the memory.
const MAX_KEYS: u64 = 100_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sides {
    Both,
    Idem,
    Baseline,
}

/// Each side once: some backends share theirs. A slow network is left to the paired comparison, since all that it
/// shows is the number of round trips.
const DRAWN: [(Backend, Sides); 8] = [
    (Backend::Memory, Sides::Both),
    (Backend::Sqlite, Sides::Both),
    (Backend::SqliteNormal, Sides::Idem),
    (Backend::Redis, Sides::Both),
    (Backend::RedisSpeculative, Sides::Idem),
    (Backend::RedisIdempotent, Sides::Baseline),
    (Backend::Sled, Sides::Both),
    (Backend::SledBatch, Sides::Baseline),
];

fn workloads(criterion: &mut Criterion) {
    for workload in Workload::ALL {
        let mut group = criterion.benchmark_group(workload.name());
        group.sample_size(10);
        group.warm_up_time(Duration::from_millis(300));
        group.measurement_time(Duration::from_secs(2));
        for (backend, sides) in DRAWN {
            let pair = backend.pair();
            if sides != Sides::Baseline {
                bench(&mut group, pair.name, pair.subject, workload);
            }
            if sides != Sides::Idem && backend.does(workload) {
                bench(&mut group, pair.baseline_name, pair.baseline, workload);
            }
        }
        group.finish();
    }
}

/// The time of one call; of a race for one key by 8 callers, of one caller's part.
fn bench(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, open: Open, workload: Workload) {
    let callers = if workload == Workload::Contended { 8 } else { 1 };
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|iterations| {
            let mut elapsed = Duration::ZERO;
            let mut left = iterations;
            while left > 0 {
                let part = left.min(MAX_KEYS);
                let calls = usize::try_from(part).expect("a part is small");
                let load = Load::new(workload, callers, calls * callers);
                let sample = load.map_err(Into::into).and_then(|load| measure(open, load));
                elapsed += sample.expect("a call of a bench must not fail").elapsed;
                left -= part;
            }
            elapsed
        });
    });
}

criterion_group!(benches, workloads);
criterion_main!(benches);
