//! `GET /`: the console to whoever asks for HTML, a few lines to whoever does not; `GET /console/..`: the files of the page.
//!
//! The page may load scripts and styles from this server only, and talk to nobody else: its policy says so to the browser. It
//! is nobody's secret; what it shows it asks for as any other client, with whatever login that takes.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use millrace_console::files;
use uuid::Uuid;

use super::error;

/// What a browser is told of everything that is served here.
const SECURITY: [(HeaderName, HeaderValue); 3] = [
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

/// The page, or what it says to a terminal.
pub(super) async fn page(headers: HeaderMap) -> Response {
    let accepts_html = headers
        .get_all(header::ACCEPT)
        .iter()
        .any(|value| value.to_str().is_ok_and(|value| value.contains("text/html")));
    let mut response = match accepts_html {
        true => html(),
        false => text(&headers).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    headers.extend(SECURITY);
    response
}

fn html() -> Response {
    let nonce = Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; connect-src 'self'; \
         img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, policy.as_str()),
    ];
    (headers, files::page(&nonce)).into_response()
}

/// For a terminal.
fn text(headers: &HeaderMap) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.unwrap_or("127.0.0.1:8033");
    let version = crate::VERSION;
    format!(
        "millrace {version}: materialized views in SQL, kept fresh as data arrives\n\
         \n\
         console   open this address in a browser\n\
         SQL       curl http://{host}/api/sql --json '{{\"query\": \"SELECT 1 AS one\"}}'\n\
         follow    curl -N http://{host}/api/subscribe --json '{{\"query\": \"my_view\"}}'\n\
         rows in   curl http://{host}/api/ingest/my_stream -H 'Content-Type: application/x-ndjson' --data-binary @rows.ndjson\n\
         state     /health, /ready, /metrics\n\
         psql      on the other port, 5433 unless chosen otherwise: psql -h 127.0.0.1 -p 5433 -U millrace millrace\n"
    )
}

/// A file of the page.
pub(super) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    let Some(file) = files::file(&path) else {
        return error::plain(StatusCode::NOT_FOUND, &format!("/console/{path} does not exist"));
    };
    let has = |name: HeaderName, wanted: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.is_some_and(|value| value.contains(wanted))
    };
    let mut response = if has(header::IF_NONE_MATCH, file.tag()) {
        StatusCode::NOT_MODIFIED.into_response()
    } else if has(header::ACCEPT_ENCODING, "gzip") {
        ([(header::CONTENT_ENCODING, "gzip")], file.gzip()).into_response()
    } else {
        file.plain().into_response()
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.media_type));
    // It is asked for each time, and sent only if it is another one.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    if let Ok(tag) = HeaderValue::from_str(file.tag()) {
        headers.insert(header::ETAG, tag);
    }
    headers.extend(SECURITY);
    response
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    async fn get_from(path: &str, sent: &[(HeaderName, &str)]) -> (StatusCode, HeaderMap, Vec<u8>) {
        let router: Router<()> = Router::new()
            .route("/", get(page))
            .route("/console/{file}", get(file));
        let mut request = Request::get(path);
        for (name, value) in sent {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        (head.status, head.headers, body.to_vec())
    }

    #[tokio::test]
    async fn a_browser_gets_the_page_and_a_terminal_gets_lines() {
        let (_, headers, body) = get_from("/", &[(header::ACCEPT, "text/html,*/*;q=0.8")]).await;
        let body = String::from_utf8(body).unwrap();
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        let nonce = policy
            .split("'nonce-")
            .nth(1)
            .unwrap()
            .split('\'')
            .next()
            .unwrap();
        assert!(nonce.len() >= 32 && body.contains(nonce), "{policy}");
        assert!(
            !policy.contains("unsafe") && policy.starts_with("default-src 'none'"),
            "{policy}"
        );
        assert_eq!(headers[header::X_FRAME_OPTIONS], "DENY");
        let (_, again, _) = get_from("/", &[(header::ACCEPT, "text/html")]).await;
        assert_ne!(
            again[header::CONTENT_SECURITY_POLICY],
            headers[header::CONTENT_SECURITY_POLICY]
        );
        let (_, headers, body) = get_from("/", &[(header::ACCEPT, "*/*"), (header::HOST, "db:80")]).await;
        let body = String::from_utf8(body).unwrap();
        assert!(
            body.contains("http://db:80/api/sql") && !body.contains('<'),
            "{body}"
        );
        assert_eq!(headers[header::CONTENT_TYPE], "text/plain; charset=utf-8");
    }

    #[tokio::test]
    async fn files_are_sent_once() {
        let gzip = (header::ACCEPT_ENCODING, "gzip, br");
        let (_, headers, packed) = get_from("/console/app.js", std::slice::from_ref(&gzip)).await;
        assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
        assert_eq!(headers[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        let (_, plain_headers, plain) = get_from("/console/app.js", &[]).await;
        assert!(!plain_headers.contains_key(header::CONTENT_ENCODING) && plain.len() > packed.len());
        let tag = headers[header::ETAG].to_str().unwrap();
        let (status, _, body) = get_from("/console/app.js", &[gzip, (header::IF_NONE_MATCH, tag)]).await;
        assert_eq!((status, body.len()), (StatusCode::NOT_MODIFIED, 0));
        let (status, ..) = get_from("/console/app.rs", &[]).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
}
