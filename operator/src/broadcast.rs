//! Placeholder of the module's owner.

use std::{sync::Arc, time::Duration};

use gridcast_crds::Broadcast;
use jiff::Timestamp;

use crate::{context::Context, failure::Error, kind::Kind};

impl Kind for Broadcast {
    type Observed = ();
    type Plan = ();

    fn observe(_: &Context, _: &Arc<Self>) -> Result<(), Error> {
        Ok(())
    }

    fn plan((): &(), _: Timestamp) {}

    async fn apply(_: &Arc<Context>, _: &Arc<Self>, (): ()) -> Result<Option<Duration>, Error> {
        Ok(None)
    }
}
