//! The queue.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use idem_core::{
    BoxError, Error, ErrorKind,
    consumer::{Delivery, Queue},
};

use super::{
    Message, StreamBuilder, Tag,
    inner::Inner,
    reply::{self, Delivered},
    settle::Action,
};
use crate::failure::Meaning;

/// A stream of a Redis server, as one consumer of a group sees it. A clone is the same consumer.
///
/// See the [module](super) for how it delivers, and what to choose.
///
/// Its calls need a tokio runtime with timers and I/O (`enable_all`).
#[derive(Clone)]
pub struct StreamQueue(Arc<Inner>);

impl fmt::Debug for StreamQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamQueue")
            .field("stream", &self.0.stream)
            .field("group", &self.0.group)
            .field("consumer", &self.0.consumer)
            .finish_non_exhaustive()
    }
}

impl StreamQueue {
    pub(super) fn new(inner: Inner) -> Self {
        Self(Arc::new(inner))
    }

    /// Options to open a queue with: the stream's key, and the name of the group whose consumers share its entries.
    pub fn builder(stream: impl Into<String>, group: impl Into<String>) -> StreamBuilder {
        StreamBuilder::new(stream.into(), group.into())
    }

    /// The name of this consumer in its group.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.0.consumer
    }

    /// Adds an entry with these fields to the stream, for all its groups, and returns its id.
    ///
    /// A producer that sends again after an error, or after a crash, may add a second entry of the same event:
    /// give the event's id in a field, and name it by [`StreamBuilder::event_id_field`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidSetting`] without fields; the server's own. If the
    /// [certainty](Error::certainty) is unknown, the entry may have been added.
    ///
    /// # Cancel safety
    /// If the future is dropped the entry may be added.
    pub async fn send<N, V>(
        &self,
        fields: impl IntoIterator<Item = (N, V)>,
    ) -> Result<String, Error>
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.0.commands.check_process()?;
        let mut command = redis::cmd("XADD");
        command.arg(&self.0.stream).arg("*");
        let mut is_empty = true;
        for (name, value) in fields {
            command.arg(name.as_ref()).arg(value.as_ref());
            is_empty = false;
        }
        if is_empty {
            let problem = "an entry has one at least".to_string();
            let kind = ErrorKind::InvalidSetting { field: "fields", problem };
            return Err(Error::nothing_done(kind));
        }
        self.add(&command).await
    }

    /// Deletes this consumer from its group, so that the server need not remember its name, and says whether it
    /// did: not while something is pending with it, in flight or left over, which would never be delivered again.
    ///
    /// Call it when the last loop on this queue and its clones has ended: one that receives makes the consumer
    /// again. Closing twice is harmless. It needs the right to `xgroup|delconsumer`.
    ///
    /// # Errors
    /// The server's own.
    ///
    /// # Cancel safety
    /// If the future is dropped the consumer is deleted or not.
    pub async fn close(&self) -> Result<bool, Error> {
        self.0.commands.check_process()?;
        self.0.leave().await
    }

    /// Sends a command that adds an entry. One whose answer is lost may have run: it is not sent again.
    async fn add(&self, command: &redis::Cmd) -> Result<String, Error> {
        let link = &self.0.commands;
        let mut patience = link.patience();
        loop {
            let answer = link.send(command).await;
            let id = answer.and_then(|id| reply::text(id).ok_or_else(|| link.misunderstood()));
            match id {
                Ok(id) => return Ok(id),
                Err(failure) if failure.meaning == Meaning::Lost => {
                    return Err(failure.into_error(patience.elapsed()));
                }
                Err(failure) => patience.bear(failure).await?,
            }
        }
    }

    fn delivery(&self, (message, attempt): Delivered) -> Delivery<Message, Tag> {
        let tag = Tag { id: message.id.clone(), attempt };
        let event_id = self.event_id(&message);
        Delivery::new(event_id, message, tag).attempt(u32::try_from(attempt).unwrap_or(u32::MAX))
    }

    /// The id of the event; empty, which no handler takes, if the entry does not tell. Its own id will not do then:
    /// the same event in another entry would run again, and nobody would know.
    fn event_id(&self, message: &Message) -> String {
        let Some(field) = &self.0.event_id_field else { return message.id.clone() };
        let text = message.field(field).and_then(|id| std::str::from_utf8(id).ok());
        text.unwrap_or_default().to_string()
    }
}

#[async_trait]
impl Queue for StreamQueue {
    type Message = Message;
    type Tag = Tag;

    async fn receive(&self, max: usize) -> Result<Vec<Delivery<Message, Tag>>, BoxError> {
        self.0.commands.check_process()?;
        let received = self.0.receive(max).await?;
        Ok(received.into_iter().map(|delivered| self.delivery(delivered)).collect())
    }

    async fn ack(&self, tag: &Tag) -> Result<(), BoxError> {
        self.0.settle(tag, Action::Ack).await
    }

    async fn nack(&self, tag: &Tag, _: &Error) -> Result<(), BoxError> {
        self.0.settle(tag, Action::GiveBack).await
    }

    async fn set_aside(&self, tag: &Tag, reason: &Error) -> Result<(), BoxError> {
        self.0.settle(tag, Action::SetAside(reason.with_causes().to_string())).await
    }

    async fn extend(&self, tag: &Tag) -> Result<(), BoxError> {
        self.0.settle(tag, Action::Extend).await
    }

    fn visibility(&self) -> Option<Duration> {
        Some(self.0.visibility)
    }

    fn horizon(&self) -> Option<Duration> {
        self.0.horizon
    }
}
