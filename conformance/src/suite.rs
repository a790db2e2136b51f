//! The macros that make tests, or a table, of the list of cases.

use crate::run::{Running, Runtime};

/// Expands to a test for each case of the suite: for the fixture's store as it is (`concrete`) and behind
/// `Arc<DynStore>` (`dynamic`), each with its omitted cases and their reasons in a constant `OMITTED`.
///
/// Every capability is declared, with `yes` or with `no("the reason")`:
///
/// - `reopen`: the store finds its data again after its last handle was closed;
/// - `receipt_faults`: [`Fixture::refuse_receipts`](crate::Fixture::refuse_receipts) works;
/// - `hostile_effects`: native effects can try to end the store's transaction.
///
/// The crate's first page shows the whole of a suite.
#[macro_export]
macro_rules! suite {
    (
        fixture: $fixture:ty,
        reopen: $reopen:ident $(($no_reopen:literal))?,
        receipt_faults: $faults:ident $(($no_faults:literal))?,
        hostile_effects: $hostile:ident $(($no_hostile:literal))? $(,)?
    ) => {
        /// The suite on the store as it is.
        pub(crate) mod concrete {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases! {
                __groups [concrete $fixture],
                [$reopen $($no_reopen)?] [$faults $($no_faults)?] [$hostile $($no_hostile)?]
            }
            /// The cases that are not run, each with the reason.
            #[allow(dead_code)]
            pub(crate) const OMITTED: &[(&str, &str)] = $crate::__cases! {
                __omitted [concrete $fixture],
                [$reopen $($no_reopen)?] [$faults $($no_faults)?] [$hostile $($no_hostile)?]
            };
        }
        /// The suite on the store behind `Arc<DynStore>`.
        pub(crate) mod dynamic {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases! {
                __groups [dynamic $fixture],
                [$reopen $($no_reopen)?] [$faults $($no_faults)?]
                [no "a portable transaction has nothing to end"]
            }
            /// The cases that are not run, each with the reason.
            #[allow(dead_code)]
            pub(crate) const OMITTED: &[(&str, &str)] = $crate::__cases! {
                __omitted [dynamic $fixture],
                [$reopen $($no_reopen)?] [$faults $($no_faults)?]
                [no "a portable transaction has nothing to end"]
            };
        }
    };
}

/// Runs the suite on the fixture's store behind `Arc<DynStore>`, and is a [`Report`](crate::Report) of it. The
/// capabilities are those of [`suite!`](crate::suite!).
#[macro_export]
macro_rules! report {
    (
        fixture: $fixture:ty,
        reopen: $reopen:ident $(($no_reopen:literal))?,
        receipt_faults: $faults:ident $(($no_faults:literal))?,
        hostile_effects: $hostile:ident $(($no_hostile:literal))? $(,)?
    ) => {
        $crate::Report::of::<$fixture>($crate::__cases! {
            __omitted [dynamic $fixture],
            [$reopen $($no_reopen)?] [$faults $($no_faults)?]
            [no "a portable transaction has nothing to end"]
        })
    };
}

/// Expands to an array of every case of the suite for the fixture, each a [`Case`], whatever it needs: for who runs
/// cases by name, as the kit does on stores that must fail them.
#[macro_export]
macro_rules! cases {
    ($fixture:ty) => {
        $crate::__cases! { __table [concrete $fixture], [yes] [yes] [yes] }
    };
}

/// A case of the suite, as [`cases!`](crate::cases!) lists it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The module of the suite that it stands in.
    pub group: &'static str,
    /// Its name, which says the rule.
    pub name: &'static str,
    /// What it runs on, if one kind of runtime is enough.
    pub runtime: Runtime,
    /// Runs it; it panics if the store does not keep the rule.
    pub run: fn() -> Running,
}

/// Takes the list entry by entry, and makes tests of those whose capability is there.
#[doc(hidden)]
#[macro_export]
macro_rules! __groups {
    ($fixture:tt) => {};
    (
        $fixture:tt
        $group:ident as $module:ident, both_runtimes, [yes] { $($case:ident)* }
        $($rest:tt)*
    ) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            mod one_thread {
                #[allow(unused_imports)]
                use super::*;
                $( $crate::__case! { $fixture, current_thread, $group, $case } )*
            }
            mod many_threads {
                #[allow(unused_imports)]
                use super::*;
                $( $crate::__case! { $fixture, multi_thread, $group, $case } )*
            }
        }
        $crate::__groups! { $fixture $($rest)* }
    };
    (
        $fixture:tt
        $group:ident as $module:ident, $runtime:ident, [yes] { $($case:ident)* }
        $($rest:tt)*
    ) => {
        mod $module {
            #[allow(unused_imports)]
            use super::*;
            $( $crate::__case! { $fixture, $runtime, $group, $case } )*
        }
        $crate::__groups! { $fixture $($rest)* }
    };
    (
        $fixture:tt
        $group:ident as $module:ident, $runtime:ident, [no $reason:literal] { $($case:ident)* }
        $($rest:tt)*
    ) => {
        $crate::__groups! { $fixture $($rest)* }
    };
}

/// Takes the list entry by entry, and is a slice of the cases whose capability is not there, with the reasons.
#[doc(hidden)]
#[macro_export]
macro_rules! __omitted {
    ([$($how:tt)*] $($list:tt)*) => {
        $crate::__omitted! { @ [] $($list)* }
    };
    (@ [$($omitted:tt)*]) => {
        &[$($omitted)*]
    };
    (
        @ [$($omitted:tt)*]
        $group:ident as $module:ident, $runtime:ident, [yes] { $($case:ident)* }
        $($rest:tt)*
    ) => {
        $crate::__omitted! { @ [$($omitted)*] $($rest)* }
    };
    (
        @ [$($omitted:tt)*]
        $group:ident as $module:ident, $runtime:ident, [no $reason:literal] { $($case:ident)* }
        $($rest:tt)*
    ) => {
        $crate::__omitted! { @ [$($omitted)* $( (stringify!($case), $reason), )*] $($rest)* }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __case {
    ([concrete $fixture:ty], $runtime:ident, $group:ident, $case:ident) => {
        #[test]
        fn $case() {
            $crate::run::<$fixture>(stringify!($case), $crate::__runtime!($runtime), || {
                Box::pin($crate::cases::$group::$case::<$crate::PlaceOf<$fixture>>())
            });
        }
    };
    ([dynamic $fixture:ty], $runtime:ident, $group:ident, $case:ident) => {
        #[test]
        fn $case() {
            $crate::run_dynamic::<$fixture>(stringify!($case), $crate::__runtime!($runtime));
        }
    };
}

/// Makes a table of the list.
#[doc(hidden)]
#[macro_export]
macro_rules! __table {
    (
        [concrete $fixture:ty]
        $( $group:ident as $module:ident, $runtime:ident, [yes] { $($case:ident)* } )*
    ) => {
        [$( $(
            $crate::Case {
                group: stringify!($module),
                name: stringify!($case),
                runtime: $crate::__runtime!($runtime),
                run: || Box::pin($crate::cases::$group::$case::<$fixture>()),
            },
        )* )*]
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __runtime {
    (multi_thread) => {
        $crate::Runtime::MultiThread
    };
    ($one_thread_will_do:ident) => {
        $crate::Runtime::CurrentThread
    };
}

#[cfg(test)]
mod tests {
    use crate::{cases::SOURCES, placed::cases};
    use std::collections::BTreeSet;

    /// The case functions of a group's source.
    fn written(source: &str) -> impl Iterator<Item = &str> {
        source.lines().filter_map(|line| line.strip_prefix("pub async fn ")?.split('<').next())
    }

    #[test]
    fn every_case_is_listed_once() {
        let written: Vec<_> = SOURCES.iter().flat_map(|(_, source)| written(source)).collect();
        let listed: Vec<_> = cases().iter().map(|case| case.name).collect();
        let sorted = |names: &[&'static str]| names.iter().copied().collect::<BTreeSet<_>>();
        assert!(written.len() > 200, "the cases must be found: {written:?}");
        assert_eq!(sorted(&written), sorted(&listed));
        assert_eq!(sorted(&written).len(), written.len(), "a case's name must be its own");
        assert_eq!(sorted(&listed).len(), listed.len(), "a case must be listed once");
    }

    #[test]
    fn every_group_is_looked_at() {
        let modules = include_str!("cases/mod.rs").lines();
        let declared = modules.filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
        let looked_at = SOURCES.iter().map(|(group, _)| *group);
        assert_eq!(declared.collect::<Vec<_>>(), looked_at.collect::<Vec<_>>());
    }
}
