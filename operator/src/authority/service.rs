//! How does an agent get its certificate?
//!
//! It shows the service-account token of its pod, bound to pod and node, and a request signed by its new key. The API
//! server says whose token it is (TokenReview); the certificate is for the node that the token is bound to and for no
//! other name. A refusal begins with one PascalCase word.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use gridcast_core::failure::chain;
use gridcast_proto::v1::{IssueReply, IssueRequest, certificates_server::Certificates};
use k8s_openapi::{
    api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, api::PostParams};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Request, Response, Status};

use super::{Authority, AuthorityError};
use crate::metrics::Metrics;

/// Audience of the tokens.
pub const AUDIENCE: &str = "gridcast.io";
/// Service account of the agents, in the operator's namespace.
pub const AGENT_ACCOUNT: &str = "gridcast-agent";
/// A certificate of an agent is good for so long; it renews after two thirds.
pub const VALID: Duration = Duration::from_hours(24);

const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";

/// Reviews at once. The API server must not suffer from a thousand agents that start at a time, nor from anybody who can
/// reach the port.
const REVIEWS: usize = 16;
/// Requests that wait for a review; further ones are refused at once.
const WAITING: usize = 256;
/// Longest wait of one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer of the API server.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);
/// Tokens have about 1 KiB, requests half of it.
const MOST_TOKEN_BYTES: usize = 16 << 10;
const MOST_REQUEST_BYTES: usize = 8 << 10;
/// Longest message of this service.
pub const MOST_MESSAGE_BYTES: usize = 32 << 10;

/// Issues certificates to agents.
pub struct Service {
    client: Client,
    authority: Arc<Authority>,
    /// The user that the agents' tokens must name.
    user: String,
    metrics: Metrics,
    waiting: Semaphore,
    reviews: Semaphore,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Service {
    /// For the agents of `namespace`.
    pub fn new(client: Client, authority: Arc<Authority>, namespace: &str, metrics: Metrics) -> Self {
        Self {
            client,
            authority,
            user: format!("system:serviceaccount:{namespace}:{AGENT_ACCOUNT}"),
            metrics,
            waiting: Semaphore::new(WAITING),
            reviews: Semaphore::new(REVIEWS),
        }
    }

    async fn answer(&self, request: IssueRequest) -> Result<IssueReply, Refusal> {
        let IssueRequest { token, csr_pem } = request;
        if token.len() > MOST_TOKEN_BYTES || csr_pem.len() > MOST_REQUEST_BYTES {
            return Err(Refusal::TooLarge);
        }
        let node = {
            let _turn = self.turn().await?;
            node(&self.review(token).await?, &self.user)?
        };
        let certificate_pem = self.authority.sign_agent(&node, &csr_pem, VALID).map_err(Refusal::from)?;
        tracing::info!(node, "issued a certificate");
        Ok(IssueReply {
            certificate_pem,
            authority_pem: self.authority.agents_ca_pem().to_owned(),
            valid_seconds: i64::try_from(VALID.as_secs()).unwrap_or(i64::MAX),
        })
    }

    async fn turn(&self) -> Result<(SemaphorePermit<'_>, SemaphorePermit<'_>), Refusal> {
        let waiting = self.waiting.try_acquire().map_err(|_| Refusal::Busy)?;
        let review = tokio::time::timeout(PATIENCE, self.reviews.acquire()).await;
        let review = review.map_err(|_| Refusal::Busy)?.map_err(|_| Refusal::Busy)?;
        Ok((waiting, review))
    }

    async fn review(&self, token: String) -> Result<TokenReviewStatus, Refusal> {
        let review = TokenReview {
            metadata: ObjectMeta::default(),
            spec: TokenReviewSpec { audiences: Some(vec![AUDIENCE.to_owned()]), token: Some(token) },
            status: None,
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let parameters = PostParams::default();
        let answer = tokio::time::timeout(REVIEW_TIMEOUT, api.create(&parameters, &review)).await;
        let answer = answer.map_err(|_| Refusal::NoReview("no answer".to_owned()))?;
        let review = answer.map_err(|error| Refusal::NoReview(chain(&error)))?;
        Ok(review.status.unwrap_or_default())
    }
}

/// The node that a reviewed token is bound to, if it is an agent's.
fn node(review: &TokenReviewStatus, wanted: &str) -> Result<String, Refusal> {
    let audiences = review.audiences.as_deref().unwrap_or_default();
    if review.authenticated != Some(true) || !audiences.iter().any(|audience| audience == AUDIENCE) {
        return Err(Refusal::Token(review.error.clone().unwrap_or_else(|| "not authenticated".to_owned())));
    }
    let user = review.user.clone().unwrap_or_default();
    let name = user.username.unwrap_or_default();
    if name != wanted {
        return Err(Refusal::Account { is: name, wanted: wanted.to_owned() });
    }
    let extra: BTreeMap<String, Vec<String>> = user.extra.unwrap_or_default();
    let bound = |key: &str| match extra.get(key).map(Vec::as_slice) {
        Some([value]) if !value.is_empty() => Some(value.clone()),
        _ => None,
    };
    match (bound(POD_NAME), bound(NODE_NAME)) {
        (Some(_), Some(node)) => Ok(node),
        _ => Err(Refusal::Unbound),
    }
}

/// Why an agent, or somebody else, gets no certificate.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("TooLarge: a token has at most {MOST_TOKEN_BYTES} bytes, a request {MOST_REQUEST_BYTES}")]
    TooLarge,
    #[error("Busy: too many ask at the moment; ask again in some seconds")]
    Busy,
    #[error("NoReview: the API server did not review the token: {0}")]
    NoReview(String),
    #[error("TokenRefused: the API server does not accept the token for audience {AUDIENCE}: {0}")]
    Token(String),
    #[error("WrongAccount: the token is of {is}, not of {wanted}")]
    Account { is: String, wanted: String },
    #[error(
        "TokenUnbound: the token is not bound to a pod and a node; mount a projected token of this Kubernetes (1.32 or later)"
    )]
    Unbound,
    #[error("RequestInvalid: cannot sign the request: {0}")]
    Request(String),
    #[error("NameUnsupported: node {0}")]
    Name(String),
}

impl From<AuthorityError> for Refusal {
    fn from(error: AuthorityError) -> Self {
        match error {
            AuthorityError::Name(_) => Self::Name(error.to_string()),
            error => Self::Request(chain(&error)),
        }
    }
}

impl Refusal {
    fn reason(&self) -> &'static str {
        match self {
            Self::TooLarge => "TooLarge",
            Self::Busy => "Busy",
            Self::NoReview(_) => "NoReview",
            Self::Token(_) => "TokenRefused",
            Self::Account { .. } => "WrongAccount",
            Self::Unbound => "TokenUnbound",
            Self::Request(_) => "RequestInvalid",
            Self::Name(_) => "NameUnsupported",
        }
    }

    fn status(&self) -> Status {
        let text = self.to_string();
        match self {
            Self::TooLarge | Self::Request(_) => Status::invalid_argument(text),
            Self::Busy => Status::resource_exhausted(text),
            Self::NoReview(_) => Status::unavailable(text),
            Self::Token(_) => Status::unauthenticated(text),
            Self::Account { .. } | Self::Unbound => Status::permission_denied(text),
            Self::Name(_) => Status::failed_precondition(text),
        }
    }
}

#[tonic::async_trait]
impl Certificates for Service {
    async fn issue(&self, request: Request<IssueRequest>) -> Result<Response<IssueReply>, Status> {
        let from = request.remote_addr().map(|address| address.to_string());
        match self.answer(request.into_inner()).await {
            Ok(reply) => {
                self.metrics.certificate("issued");
                Ok(Response::new(reply))
            }
            Err(refusal) => {
                self.metrics.certificate(refusal.reason());
                tracing::warn!(from, reason = refusal.reason(), error = %refusal, "refused a certificate");
                Err(refusal.status())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::authentication::v1::UserInfo;

    const WANTED: &str = "system:serviceaccount:gridcast-system:gridcast-agent";

    fn review(user: &str, extra: &[(&str, &[&str])]) -> TokenReviewStatus {
        let extra = extra.iter().map(|(key, values)| {
            ((*key).to_owned(), values.iter().map(|value| (*value).to_owned()).collect())
        });
        TokenReviewStatus {
            authenticated: Some(true),
            audiences: Some(vec![AUDIENCE.into()]),
            user: Some(UserInfo {
                username: Some(user.into()),
                extra: Some(extra.collect()),
                ..UserInfo::default()
            }),
            ..TokenReviewStatus::default()
        }
    }

    #[test]
    fn only_a_bound_token_of_an_agent_names_a_node() {
        let bound: &[(&str, &[&str])] = &[(POD_NAME, &["gridcast-agent-x"]), (NODE_NAME, &["n1"])];
        assert_eq!(node(&review(WANTED, bound), WANTED).unwrap(), "n1");

        let word = |review: &TokenReviewStatus| node(review, WANTED).unwrap_err().reason();
        assert_eq!(word(&review("system:serviceaccount:default:gridcast-agent", bound)), "WrongAccount");
        assert_eq!(word(&review("system:admin", bound)), "WrongAccount");
        assert_eq!(word(&review(WANTED, &[(NODE_NAME, &["n1"])])), "TokenUnbound");
        assert_eq!(word(&review(WANTED, &[(POD_NAME, &["p"])])), "TokenUnbound");
        assert_eq!(word(&review(WANTED, &[(POD_NAME, &["p"]), (NODE_NAME, &["n1", "n2"])])), "TokenUnbound");
        assert_eq!(word(&review(WANTED, &[(POD_NAME, &["p"]), (NODE_NAME, &[""])])), "TokenUnbound");
        let mut foreign = review(WANTED, bound);
        foreign.audiences = Some(vec!["https://kubernetes.default.svc".into()]);
        assert_eq!(word(&foreign), "TokenRefused");
        let mut unknown = review(WANTED, bound);
        unknown.authenticated = Some(false);
        assert_eq!(word(&unknown), "TokenRefused");
        assert_eq!(word(&TokenReviewStatus::default()), "TokenRefused");
    }

    #[test]
    fn a_refusal_begins_with_its_word() {
        for refusal in [
            Refusal::TooLarge,
            Refusal::Busy,
            Refusal::NoReview(String::new()),
            Refusal::Token(String::new()),
            Refusal::Account { is: String::new(), wanted: String::new() },
            Refusal::Unbound,
            Refusal::Request(String::new()),
            Refusal::Name(String::new()),
        ] {
            assert!(refusal.to_string().starts_with(&format!("{}: ", refusal.reason())), "{refusal}");
        }
    }
}
