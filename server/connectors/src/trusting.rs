//! What clients of HTTP trust besides the authorities that are built in.

use std::path::Path;

use reqwest::{Certificate, ClientBuilder};

use crate::source::ConnectorError;

/// Has a client trust the authorities of a file of certificates, if there is one.
///
/// # Errors
/// The file cannot be read, or is not one of certificates.
pub(crate) async fn trusting(
    mut client: ClientBuilder,
    path: Option<&Path>,
) -> Result<ClientBuilder, ConnectorError> {
    let Some(path) = path else { return Ok(client) };
    let failed = |why: String| ConnectorError::passing(format!("{}: {why}", path.display()));
    let pem = tokio::fs::read(path)
        .await
        .map_err(|error| failed(error.to_string()))?;
    let authorities = Certificate::from_pem_bundle(&pem).map_err(|error| failed(error.to_string()))?;
    for authority in authorities {
        client = client.add_root_certificate(authority);
    }
    Ok(client)
}
