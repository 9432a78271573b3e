//! Errors as HTTP answers: `{"error": {"message", "code", "detail", "hint", "position"}}` and a status.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_postgres::error::{SqlError, SqlState};
use serde_json::{Value, json};

/// An error as the JSON object that stands under `error`.
pub fn object(error: &SqlError) -> Value {
    let mut object = json!({"message": error.message, "code": error.code.code()});
    let more = [
        ("detail", error.detail.as_deref()),
        ("hint", error.hint.as_deref()),
        ("context", error.context.as_deref()),
    ];
    for (name, text) in more {
        if let Some(text) = text {
            object[name] = json!(text);
        }
    }
    if let Some(position) = error.position {
        object["position"] = json!(position);
    }
    object
}

/// The status that fits an error.
pub fn status(error: &SqlError) -> StatusCode {
    match error.code {
        SqlState::InvalidAuthorizationSpecification | SqlState::InvalidPassword => StatusCode::UNAUTHORIZED,
        SqlState::InsufficientPrivilege => StatusCode::FORBIDDEN,
        SqlState::UndefinedTable
        | SqlState::UndefinedObject
        | SqlState::InvalidCatalogName
        | SqlState::InvalidSchemaName => StatusCode::NOT_FOUND,
        SqlState::UniqueViolation
        | SqlState::DuplicateTable
        | SqlState::DuplicateObject
        | SqlState::DuplicateSchema
        | SqlState::DuplicateDatabase
        | SqlState::DependentObjectsStillExist
        | SqlState::SerializationFailure
        | SqlState::ObjectInUse => StatusCode::CONFLICT,
        SqlState::TooManyConnections | SqlState::InsufficientResources => StatusCode::TOO_MANY_REQUESTS,
        SqlState::AdminShutdown | SqlState::CannotConnectNow => StatusCode::SERVICE_UNAVAILABLE,
        SqlState::DiskFull | SqlState::OutOfMemory => StatusCode::INSUFFICIENT_STORAGE,
        SqlState::IoError | SqlState::DataCorrupted | SqlState::InternalError => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::BAD_REQUEST,
    }
}

/// The answer to a request that failed before anything was sent.
pub fn response(error: &SqlError) -> Response {
    with_object(status(error), object(error))
}

/// The answer to rows for which there is no space now: the client is to send them again.
pub fn try_again(error: &SqlError) -> Response {
    with_object(StatusCode::TOO_MANY_REQUESTS, object(error))
}

/// The answer to a request that is wrong as HTTP.
pub fn plain(status: StatusCode, message: &str) -> Response {
    with_object(status, json!({"message": message}))
}

fn with_object(status: StatusCode, object: Value) -> Response {
    let mut response = (status, Json(json!({"error": object}))).into_response();
    let headers = response.headers_mut();
    if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(
            header::WWW_AUTHENTICATE,
            HeaderValue::from_static("Basic realm=\"millrace\""),
        );
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_its_status_and_everything_known() {
        let error = SqlError::new(SqlState::UndefinedTable, "no t")
            .with_hint("make t")
            .at(Some(15));
        assert_eq!(status(&error), StatusCode::NOT_FOUND);
        assert_eq!(
            object(&error),
            json!({"message": "no t", "code": "42P01", "hint": "make t", "position": 15})
        );
        assert_eq!(
            status(&SqlError::new(SqlState::SyntaxError, "?")),
            StatusCode::BAD_REQUEST
        );
        let unavailable = response(&SqlError::new(SqlState::CannotConnectNow, "wait"));
        assert_eq!(unavailable.headers()[header::RETRY_AFTER], "1");
    }
}
