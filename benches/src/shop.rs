//! What the operations do: they place orders.

use idem_core::{
    EffectError, Error, Fingerprint, Key, Outcome, Request, Transaction, consumer::Marked,
};
use serde::{Deserialize, Serialize};

/// Who marks events.
pub(crate) const CONSUMER: &str = "billing";

/// One call: a request with a fingerprint, and the number of the order that it places.
#[derive(Debug)]
pub struct Order {
    /// Key and fingerprint, made outside what is timed.
    pub request: Request,
    /// What the effect writes, and its result names.
    pub number: u64,
}

/// The result of placing an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    /// The row of the order, where there are rows.
    pub id: i64,
    /// The order's number.
    pub number: u64,
}

impl Order {
    pub(crate) fn new(number: u64) -> Result<Self, Error> {
        Self::with_parameters(number, "three of them")
    }

    /// The same key with other parameters.
    pub(crate) fn changed(number: u64) -> Result<Self, Error> {
        Self::with_parameters(number, "four of them")
    }

    /// The event that the order is, for a consumer who marks it.
    pub(crate) fn event(&self) -> &str {
        self.request.key().request()
    }

    fn with_parameters(number: u64, parameters: &str) -> Result<Self, Error> {
        // Scattered as request keys are, so that no side gains from keys in order.
        let scattered = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let key = Key::new("north", "web-order", format_args!("intent-{scattered:016x}"))?;
        let fingerprint = Fingerprint::of_bytes(parameters);
        Ok(Self { request: Request::new(key).with_fingerprint(fingerprint), number })
    }
}

/// The effect for a store without rows: one value.
pub(crate) fn put_order<Tx: Transaction + ?Sized>(
    tx: &mut Tx,
    number: u64,
) -> Result<Placed, EffectError> {
    tx.put(&number.to_be_bytes(), b"three of them")?;
    Ok(Placed { id: 0, number })
}

/// The answer to a mark, as if it were one to an order.
pub(crate) fn marked(order: &Order, marked: Marked) -> Outcome<Placed> {
    let placed = Placed { id: 0, number: order.number };
    match marked {
        Marked::First => Outcome::Created(placed),
        Marked::Again => Outcome::Replayed(placed),
    }
}
