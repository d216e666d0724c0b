//! Keeps the text of each record of an event, for a handler that passes records on. Any other
//! handler costs no copy of the event.

use std::task::{Context, Poll};

use lambda_runtime::LambdaEvent;
use serde_json::value::RawValue;
use tower::Service;

use super::SqsEvent;

/// A service that gets the events with the texts of their records.
#[derive(Clone)]
pub(super) struct WithTexts<S>(pub(super) S);

impl<S: Service<LambdaEvent<SqsEvent>>> Service<LambdaEvent<Box<RawValue>>> for WithTexts<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, event: LambdaEvent<Box<RawValue>>) -> S::Future {
        let LambdaEvent { payload, context } = event;
        self.0.call(LambdaEvent::new(SqsEvent::with_texts(payload.get()), context))
    }
}
