//! Receipts as bytes: the fingerprint, and after it the result as JSON if there is one.

use idem_core::{BoxError, Outcome};

use crate::{Order, Placed};

/// Of a key that somebody is at.
pub(super) fn pending(order: &Order) -> Vec<u8> {
    fingerprint(order)
}

/// Of a key that is done.
pub(super) fn completed(order: &Order, placed: Placed) -> Result<Vec<u8>, BoxError> {
    let mut receipt = pending(order);
    serde_json::to_writer(&mut receipt, &placed)?;
    Ok(receipt)
}

/// What a caller is told who finds this; none while somebody is at it.
pub(super) fn answer(order: &Order, receipt: &[u8]) -> Result<Option<Outcome<Placed>>, BoxError> {
    match receipt.strip_prefix(fingerprint(order).as_slice()) {
        None => Ok(Some(Outcome::Conflict)),
        Some([]) => Ok(None),
        Some(result) => Ok(Some(Outcome::Replayed(serde_json::from_slice(result)?))),
    }
}

fn fingerprint(order: &Order) -> Vec<u8> {
    let fingerprint = order.request.fingerprint_value();
    fingerprint.map(|fingerprint| fingerprint.to_bytes().to_vec()).unwrap_or_default()
}
