//! What a store promises, in words that a program can compare.

/// What survives what. They have no order: what a server is configured for may be more or less than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// Nothing survives the process.
    Process,
    /// A commit survives a crash of the process, not one of the machine.
    ProcessCrash,
    /// A commit survives a crash of the machine, as far as its disk keeps its word.
    PowerLoss,
    /// What the server is configured for.
    AsServer,
}

/// Who may use the same data at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Sharing {
    /// One process.
    Process,
    /// Processes of one machine.
    Host,
    /// Processes of many machines.
    Network,
}

/// Whose clock decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClockSource {
    /// This process's.
    Local,
    /// The server's.
    Server,
}

/// What waits while an effect of another key runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Delays {
    /// Nothing for longer than some milliseconds: where callers take turns for a value that they race for, one that waits
    /// takes the turn over after 5 ms, and 0.5 ms more for each caller before it.
    Nothing,
    /// Whoever wants to write; replays and reads go on.
    Writes,
    /// Every call.
    Everything,
}

/// What a store promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Guarantees {
    /// What a commit survives.
    pub durability: Durability,
    /// Who may share the data.
    pub sharing: Sharing,
    /// Whose clock decides.
    pub clock: ClockSource,
    /// What waits while an effect of another key runs.
    pub delays: Delays,
    /// Whether an effect may run more than once before one run commits.
    pub reruns: bool,
    /// Whether an effect may run before anybody has looked at its key: it then runs, and is thrown away, for a
    /// duplicate too; and a receipt's life counts from the commit, instead of the start of the run.
    pub speculative: bool,
    /// Whether [`crate::Store::list`] works.
    pub lists: bool,
}

impl Guarantees {
    /// What a store promises; it goes by the local clock, delays nothing, may run effects again,
    /// looks at a key before its effect runs, and can list.
    #[must_use]
    pub const fn new(durability: Durability, sharing: Sharing) -> Self {
        Self {
            durability,
            sharing,
            clock: ClockSource::Local,
            delays: Delays::Nothing,
            reruns: true,
            speculative: false,
            lists: true,
        }
    }

    /// The same with another clock.
    #[must_use]
    pub const fn clock(mut self, clock: ClockSource) -> Self {
        self.clock = clock;
        self
    }

    /// The same with what waits while an effect of another key runs.
    #[must_use]
    pub const fn delays(mut self, delays: Delays) -> Self {
        self.delays = delays;
        self
    }

    /// The same with effects that may run again, or never do.
    #[must_use]
    pub const fn reruns(mut self, reruns: bool) -> Self {
        self.reruns = reruns;
        self
    }

    /// The same with effects that run before their key was looked at, or not.
    #[must_use]
    pub const fn speculative(mut self, speculative: bool) -> Self {
        self.speculative = speculative;
        self
    }

    /// The same with or without listing.
    #[must_use]
    pub const fn lists(mut self, lists: bool) -> Self {
        self.lists = lists;
        self
    }
}
