//! Who is how far, and what does the caller hear of it?

use gridcast_proto::v1::broadcast_event::Event;
use gridcast_proto::v1::{self, follow_event};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;

use super::failure::{Failure, Fault};

/// Events on their way to the caller.
pub(crate) type Events = mpsc::Sender<Result<v1::BroadcastEvent, Status>>;

/// Sends an event to the caller.
pub(crate) async fn emit(events: &Events, event: Event) {
    // A caller that is gone is noticed elsewhere.
    let _ = events.send(Ok(v1::BroadcastEvent { event: Some(event) })).await;
}

/// The state of every node of one broadcast.
#[derive(Debug)]
pub(crate) struct Chronicle<'a> {
    events: &'a Events,
    started: Instant,
    slowest: f64,
    ready: Vec<bool>,
    verified: Vec<bool>,
    sealed: bool,
    copied: bool,
}

impl<'a> Chronicle<'a> {
    /// Nobody is ready. `copy`: whether the source keeps one.
    pub(crate) fn new(events: &'a Events, started: Instant, members: usize, copy: bool) -> Self {
        let nobody = vec![false; members];
        Self {
            events,
            started,
            slowest: 0.0,
            ready: nobody.clone(),
            verified: nobody,
            sealed: false,
            copied: !copy,
        }
    }

    /// Whether everybody has what was sent, and it is what is at the source.
    pub(crate) fn is_complete(&self) -> bool {
        self.sealed && self.copied && self.verified.iter().all(|verified| *verified)
    }

    /// Seconds until the slowest node had published.
    pub(crate) fn seconds(&self) -> f64 {
        self.slowest
    }

    /// A member said something. True when by now all members are ready.
    pub(crate) async fn said(
        &mut self,
        index: usize,
        name: &str,
        event: follow_event::Event,
    ) -> Result<bool, Fault> {
        match event {
            follow_event::Event::Ready(_) => self.ready[index] = true,
            follow_event::Event::Progress(v1::FollowProgress { bytes }) => {
                let event = Event::Progress(v1::NodeProgress { node: name.to_owned(), bytes });
                // Who does not read fast enough gets the next one.
                let _ = self.events.try_send(Ok(v1::BroadcastEvent { event: Some(event) }));
            }
            follow_event::Event::Published(v1::FollowPublished { bytes_received }) => {
                self.published(name, Instant::now(), bytes_received).await;
            }
            follow_event::Event::Verified(v1::FollowVerified { verified, message, .. }) => {
                self.conclude(name, verified, message).await?;
                self.verified[index] = true;
            }
            follow_event::Event::Failed(failed) => return Err(Fault::reported(name, failed)),
        }
        Ok(self.ready.iter().all(|ready| *ready))
    }

    /// A member's call has ended: fine when it had said that all is well.
    pub(crate) fn lost(&self, index: usize, name: &str, detail: String) -> Result<(), Fault> {
        if self.verified[index] { Ok(()) } else { Err(Fault::new(name, &Failure::lost(detail))) }
    }

    /// A node has published, at this moment.
    pub(crate) async fn published(&mut self, name: &str, at: Instant, bytes_received: u64) {
        let seconds = at.duration_since(self.started).as_secs_f64();
        self.slowest = self.slowest.max(seconds);
        let node = name.to_owned();
        emit(self.events, Event::Published(v1::NodePublished { node, seconds, bytes_received })).await;
    }

    /// The source has been read to its end and has not changed.
    pub(crate) fn sealed(&mut self) {
        tracing::debug!(elapsed = ?self.started.elapsed(), "the source is read");
        self.sealed = true;
    }

    /// The source's own copy was compared.
    pub(crate) async fn copied(&mut self, name: &str, difference: Option<String>) -> Result<(), Fault> {
        self.conclude(name, difference.is_none(), difference.unwrap_or_default()).await?;
        self.copied = true;
        Ok(())
    }

    /// Tells what the comparison of a published directory said; a difference ends the broadcast.
    async fn conclude(&self, name: &str, verified: bool, message: String) -> Result<(), Fault> {
        let event = v1::NodeVerified { node: name.to_owned(), verified, message: message.clone() };
        emit(self.events, Event::Verified(event)).await;
        if verified {
            return Ok(());
        }
        Err(Fault::new(name, &Failure::corrupt(format!("the published directory differs: {message}"))))
    }
}
