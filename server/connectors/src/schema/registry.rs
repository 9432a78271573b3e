//! Asks a schema registry.

use std::time::Duration;

use millrace_catalog::connector::registry::RegistryPlace;
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::source::ConnectorError;
use crate::trusting::trusting;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(10);
/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;
/// The most schemas that one may refer to, through others too.
const REFERENCES_MAX: usize = 256;

/// A registry of schemas.
#[derive(Debug)]
pub struct Registry {
    place: RegistryPlace,
    client: Client,
    password: Option<String>,
}

/// A schema as the registry has it.
#[derive(Debug)]
pub struct Registered {
    pub language: Language,
    pub text: String,
    /// What it refers to, by the names that it has for them, those first that others refer to.
    pub references: Vec<(String, String)>,
}

/// What a schema is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Language {
    #[default]
    Avro,
    Protobuf,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    schema: String,
    #[serde(default)]
    schema_type: Language,
    #[serde(default)]
    references: Vec<Reference>,
}

#[derive(Deserialize, Clone)]
struct Reference {
    name: String,
    subject: String,
    version: i64,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
}

impl Registry {
    /// Reads the password, and asks nobody yet.
    ///
    /// # Errors
    /// The password or the authority cannot be read.
    pub async fn new(place: &RegistryPlace) -> Result<Registry, ConnectorError> {
        let password = match &place.user {
            Some((_, secret)) => {
                let secret = secret.clone();
                // Whatever the file is, nobody else waits for it.
                let read = tokio::task::spawn_blocking(move || secret.read()).await;
                let bytes = read
                    .map_err(|error| ConnectorError::passing(error.to_string()))?
                    .map_err(|error| ConnectorError::passing(error.message))?;
                let text = String::from_utf8(bytes);
                Some(text.map_err(|_| {
                    ConnectorError::passing("the password for the schema registry is not UTF-8")
                })?)
            }
            None => None,
        };
        let client = Client::builder()
            .timeout(ANSWER)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        let client = trusting(client, place.ca.as_deref()).await?;
        Ok(Registry {
            place: place.clone(),
            client: client
                .build()
                .map_err(|error| ConnectorError::passing(error.to_string()))?,
            password,
        })
    }

    /// The schema of a number; none: there is none of that.
    ///
    /// # Errors
    /// The registry does not answer, or refuses.
    pub async fn schema(&self, id: u32) -> Result<Option<Registered>, ConnectorError> {
        match self.get(&format!("/schemas/ids/{id}")).await? {
            Some(answer) => self.with_references(answer).await.map(Some),
            None => Ok(None),
        }
    }

    /// The newest schema of a subject; none: there is no such subject.
    ///
    /// # Errors
    /// The registry does not answer, or refuses.
    pub async fn newest(&self, subject: &str) -> Result<Option<Registered>, ConnectorError> {
        match self
            .get(&format!("/subjects/{}/versions/latest", escaped(subject)))
            .await?
        {
            Some(answer) => self.with_references(answer).await.map(Some),
            None => Ok(None),
        }
    }

    async fn with_references(&self, answer: Answer) -> Result<Registered, ConnectorError> {
        let mut references: Vec<(String, String)> = vec![];
        // What is still to be looked at; after what it refers to it is taken.
        let mut left: Vec<(Reference, Option<Answer>)> = answer
            .references
            .iter()
            .rev()
            .map(|reference| (reference.clone(), None))
            .collect();
        let mut asked = 0;
        while let Some((reference, seen)) = left.pop() {
            if references.iter().any(|(name, _)| *name == reference.name) {
                continue;
            }
            if let Some(answer) = seen {
                references.push((reference.name, answer.schema));
                continue;
            }
            asked += 1;
            let Reference {
                name,
                subject,
                version,
            } = &reference;
            if asked > REFERENCES_MAX {
                let why = format!("a schema refers to more than {REFERENCES_MAX} others, or to itself");
                return Err(self.failed(&why));
            }
            let path = format!("/subjects/{}/versions/{version}", escaped(subject));
            let found: Option<Answer> = self.get(&path).await?;
            let found = found.ok_or_else(|| {
                self.failed(&format!(
                    "a schema refers to \"{name}\", version {version} of subject {subject}, which is not there"
                ))
            })?;
            let others = found.references.clone();
            left.push((reference, Some(found)));
            left.extend(others.into_iter().rev().map(|reference| (reference, None)));
        }
        Ok(Registered {
            language: answer.schema_type,
            text: answer.schema,
            references,
        })
    }

    /// Registers a schema of Avro as the newest of a subject, unless it is that already, and tells its number.
    ///
    /// # Errors
    /// The registry does not answer, or refuses: readers of the schema before could not read what is written.
    pub async fn register(&self, subject: &str, schema: &str) -> Result<u32, ConnectorError> {
        #[derive(Deserialize)]
        struct Answer {
            id: u32,
        }
        let path = format!("/subjects/{}/versions", escaped(subject));
        let body = json!({ "schema": schema });
        let answer: Option<Answer> = self.ask(&path, Some(&body)).await?;
        let answer =
            answer.ok_or_else(|| self.failed(&format!("it does not take schemas of subject {subject}")))?;
        Ok(answer.id)
    }

    /// Looks whether [`Self::register`] would be refused.
    ///
    /// # Errors
    /// It would be, or the registry does not answer.
    pub async fn check(&self, subject: &str, schema: &str) -> Result<(), ConnectorError> {
        #[derive(Deserialize)]
        struct Answer {
            is_compatible: bool,
            #[serde(default)]
            messages: Vec<String>,
        }
        let path = format!(
            "/compatibility/subjects/{}/versions/latest?verbose=true",
            escaped(subject)
        );
        let body = json!({ "schema": schema });
        let answer: Option<Answer> = self.ask(&path, Some(&body)).await?;
        match answer {
            Some(answer) if !answer.is_compatible => Err(incompatible(subject, &answer.messages.join("; "))),
            _ => Ok(()),
        }
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, ConnectorError> {
        self.ask(path, None).await
    }

    /// The answer of whichever server answers, to a GET or, with a body, a POST; none: it says that it has no such thing.
    async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Option<T>, ConnectorError> {
        let mut last = None;
        for url in &self.place.urls {
            match self.ask_at(url, path, body).await {
                Err(error) if !error.is_final => last = Some(error),
                answer => return answer,
            }
        }
        Err(last.unwrap_or_else(|| self.failed("it has no address")))
    }

    async fn ask_at<T: DeserializeOwned>(
        &self,
        url: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Option<T>, ConnectorError> {
        const FORM: &str = "application/vnd.schemaregistry.v1+json";
        let failed = |why: String| ConnectorError::passing(format!("the schema registry at {url}: {why}"));
        let request = match body {
            None => self.client.get(format!("{url}{path}")),
            Some(body) => (self.client.post(format!("{url}{path}")))
                .header("Content-Type", FORM)
                .body(body.to_string()),
        };
        let mut request = request.header("Accept", format!("{FORM}, application/json"));
        if let Some((user, _)) = &self.place.user {
            request = request.basic_auth(user, self.password.as_ref());
        }
        let mut answer = request.send().await.map_err(|error| failed(cause(&error)))?;
        let status = answer.status();
        let mut body = vec![];
        while let Some(piece) = answer.chunk().await.map_err(|error| failed(cause(&error)))? {
            if body.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(failed(format!(
                    "an answer is larger than {} MB",
                    ANSWER_BYTES_MAX >> 20
                )));
            }
            body.extend_from_slice(&piece);
        }
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .map(Some)
                .map_err(|error| failed(format!("its answer to {path} is not a schema: {error}"))),
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let mut error = failed(format!("it refuses: {status}"));
                error.hint = Some("See schema.registry.username and the password.".to_owned());
                Err(error)
            }
            StatusCode::CONFLICT => {
                let said = serde_json::from_slice::<Refusal>(&body).map(|refusal| refusal.message);
                let subject = path.split('/').nth(2).unwrap_or_default();
                Err(incompatible(subject, &said.unwrap_or_default()))
            }
            _ => {
                let said = serde_json::from_slice::<Refusal>(&body).map(|refusal| refusal.message);
                Err(failed(
                    format!("{status} {}", said.unwrap_or_default()).trim().to_owned(),
                ))
            }
        }
    }

    fn failed(&self, why: &str) -> ConnectorError {
        ConnectorError::passing(format!(
            "the schema registry at {}: {why}",
            self.place.urls.join(", ")
        ))
    }
}

fn incompatible(subject: &str, said: &str) -> ConnectorError {
    let said = match said {
        "" => String::new(),
        said => format!(": {said}"),
    };
    ConnectorError::lasting(
        format!("the schema registry refuses the schema for subject {subject} as incompatible{said}"),
        "Give the columns the types of the registered schema, use another topic, or change the subject's compatibility in the registry.",
    )
}

/// What is at the bottom of an error; what is above it names an address that was said already.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("it did not answer within {} seconds", ANSWER.as_secs());
    }
    let mut bottom: &dyn std::error::Error = error;
    while let Some(deeper) = bottom.source() {
        bottom = deeper;
    }
    bottom.to_string()
}

/// A name as part of a path.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}
