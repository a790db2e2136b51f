//! A key that is held for an effect outside the store.

mod acquire;
mod guard;
mod keep_alive;
mod run;
mod step;
mod terms;

pub use acquire::Claim;
pub use guard::{Lease, LeaseError};
pub use keep_alive::KeptAlive;
pub use run::{Holding, LeasedOutcome, OnFailure};
pub use terms::LeaseTerms;
