//! What an error keeps of what caused it, and tells.

use super::*;

#[derive(Debug, PartialEq)]
struct Declined(u32);

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "declined {}", self.0)
    }
}

impl StdError for Declined {}

fn failing() -> Result<(), EffectError> {
    Err(Declined(7))?;
    Ok(())
}

#[test]
fn an_effects_error_keeps_its_type() {
    let error = Error::from(failing().unwrap_err());
    assert_eq!(error.effect_error::<Declined>(), Some(&Declined(7)));
    assert_eq!(error.certainty(), Certainty::NothingDone);
    let error = error.into_effect_error::<fmt::Error>().unwrap_err();
    assert_eq!(error.into_effect_error::<Declined>().unwrap(), Declined(7));
}

#[test]
fn a_transactions_own_error_keeps_its_kind_and_another_stores_does_not() {
    let pass_on = |error: Error| -> Result<(), EffectError> { Err(error.into()) };
    let own = Error::nothing_done(ErrorKind::Full).of_transaction();
    let error = Error::from(pass_on(own).unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::Full), "{error:?}");
    let foreign = Error::new(ErrorKind::Store, Certainty::Unknown);
    let error = Error::from(pass_on(foreign).unwrap_err());
    assert!(matches!(error.kind(), ErrorKind::Effect), "{error:?}");
    assert_eq!(error.certainty(), Certainty::NothingDone);
    let foreign = error.effect_error::<Error>().unwrap();
    assert_eq!(foreign.certainty(), Certainty::Unknown);
}

#[test]
fn a_stores_source_is_no_effects_error() {
    let error = Error::nothing_done(ErrorKind::Store).with_source(Declined(1));
    assert_eq!(error.effect_error::<Declined>(), None);
    assert_eq!(error.source().unwrap().to_string(), "declined 1");
}

#[derive(Debug)]
struct Wrapped(Declined);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Wrapped {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn causes_are_told_in_order_and_none_twice_in_a_row() {
    let error = Error::nothing_done(ErrorKind::Closed);
    assert_eq!(error.with_causes().to_string(), error.to_string());
    let error = Error::nothing_done(ErrorKind::Closed).with_source(Wrapped(Declined(1)));
    assert_eq!(error.with_causes().to_string(), format!("{error}: declined 1"));
}
