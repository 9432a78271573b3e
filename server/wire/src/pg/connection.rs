//! One client's connection: a task that owns the wire and the session and takes message after message.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{Stream, StreamExt};
use millrace_database::Database;
use millrace_database::running::CancelHandle;
use millrace_database::sessions::{SessionInfo, TransactionStatus};
use millrace_postgres::error::{SqlError, SqlState};
use millrace_session::Session;
use pgwire::messages::response::NotificationResponse;
use pgwire::messages::startup::{Authentication, BackendKeyData, ParameterStatus};
use pgwire::messages::{PgWireBackendMessage, PgWireFrontendMessage};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Duration, timeout};

use super::cancel::{self, CancelRegistry, Registration};
use super::extended::{Portal, Statement};
use super::message;
use super::startup::{self, Hello};
use super::wire::{Closed, Wire};
use crate::addresses::{Addresses, Place};
use crate::ended::Told;
use crate::login::Doors;
use crate::slot::{DatabaseSlot, signalled};
use crate::tls::{Encrypt, Tls};

/// How long a client may take from connecting to being let in.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// What all connections share.
pub struct Shared {
    /// The database, once it has been opened.
    pub database: Arc<DatabaseSlot>,
    /// How connections are encrypted, if they are.
    pub tls: Option<Arc<Tls>>,
    /// Who may come in.
    pub doors: Arc<Doors>,
    /// Who can be cancelled.
    pub cancels: Arc<CancelRegistry>,
    /// Sessions at a time, and the places that are left.
    pub sessions_max: usize,
    pub places: Arc<Semaphore>,
    /// How many of these are kept for superusers.
    pub sessions_reserved: usize,
    /// Places for each address.
    pub addresses: Arc<Addresses>,
    /// Who is told of statements.
    pub told: Told,
    /// The longest statement.
    pub statement_bytes_max: usize,
    /// The longest message.
    pub message_bytes_max: usize,
}

/// Why an answer could not be completed.
pub(super) enum Failure {
    /// The statement failed: the client is told, and the connection goes on.
    Sql(SqlError),
    /// The connection ends.
    Closed(Closed),
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Failure::Sql(error)
    }
}

impl From<Closed> for Failure {
    fn from(closed: Closed) -> Self {
        Failure::Closed(closed)
    }
}

/// A connection that was let in.
pub(super) struct Connection<S> {
    pub(super) wire: Wire<S>,
    pub(super) session: Arc<Session>,
    pub(super) shared: Arc<Shared>,
    pub(super) statements: BTreeMap<String, Arc<Statement>>,
    pub(super) portals: BTreeMap<String, Portal>,
    /// After an error in the extended protocol, everything up to the next Sync is skipped.
    pub(super) skip_to_sync: bool,
    /// Whether the client was told that it may ask, and has not since.
    resting: bool,
    terminated: CancelHandle,
    stopping: watch::Receiver<bool>,
    _admission: Admission,
}

/// What a client has that was let in.
struct Admission {
    _registration: Registration,
    _place: OwnedSemaphorePermit,
    _of_address: Place,
}

/// Serves a client from its first byte to its last. Whatever happens concerns only this connection. `is_admitted` becomes true
/// when it has shown who it is and has a session.
pub async fn serve<S: Encrypt>(
    stream: S,
    peer: String,
    shared: Arc<Shared>,
    is_admitted: Arc<AtomicBool>,
    mut stopping: watch::Receiver<bool>,
) {
    let mut wire = Wire::new(stream, shared.message_bytes_max);
    let admitted = tokio::select! {
        () = signalled(&mut stopping) => Err(Closed::ByServer),
        admitted = timeout(STARTUP_TIMEOUT, admit(&mut wire, peer.clone(), &shared)) => {
            admitted.unwrap_or(Err(Closed::ByClient))
        }
    };
    let closed = match admitted {
        Ok(Some((session, admission))) => {
            is_admitted.store(true, Ordering::Release);
            let mut connection = Connection {
                wire,
                resting: false,
                terminated: session.cancel_handle(),
                session,
                shared,
                statements: BTreeMap::new(),
                portals: BTreeMap::new(),
                skip_to_sync: false,
                stopping,
                _admission: admission,
            };
            let closed = connection.run().await;
            let (id, user) = (connection.session.id(), &connection.session.info().user);
            tracing::info!(target: "millrace::audit", event = "disconnected", user, peer, session = id);
            wire = connection.wire;
            closed
        }
        Ok(None) => Closed::ByClient,
        Err(closed) => closed,
    };
    farewell(wire, closed, &peer).await;
}

/// Tells the client why it is sent away, if it can still be told.
async fn farewell<S: AsyncRead + AsyncWrite + Unpin>(mut wire: Wire<S>, closed: Closed, peer: &str) {
    let last_words = match closed {
        Closed::ByClient => None,
        Closed::Io(error) => {
            tracing::debug!(peer, %error, "connection lost");
            None
        }
        Closed::ByServer => Some(SqlError::new(
            SqlState::AdminShutdown,
            "terminating connection due to administrator command",
        )),
        Closed::Fatal(error) => {
            tracing::info!(peer, code = error.code.code(), error = %error, "connection refused or \
                 interrupted");
            Some(error)
        }
    };
    if let Some(error) = last_words
        && wire.put(&message::fatal_response(error)).is_ok()
    {
        // The client may be gone already; there is nobody else to tell.
        let _ = wire.flush().await;
    }
    let _ = wire.shutdown().await;
}

/// Start-up: who it is, whether it may, and a session for it. `None` when it only came to cancel.
async fn admit<S: Encrypt>(
    wire: &mut Wire<S>,
    peer: String,
    shared: &Shared,
) -> Result<Option<(Arc<Session>, Admission)>, Closed> {
    let request = match startup::hello(wire).await? {
        Hello::Cancel(request) => {
            shared.cancels.cancel(request.pid, &request.secret_key);
            return Ok(None);
        }
        Hello::Session(request) => request,
    };
    wire.established(request.version);
    if !wire.stream().is_encrypted() && shared.tls.as_ref().is_some_and(|tls| tls.is_required()) {
        let error = SqlError::new(
            SqlState::InvalidAuthorizationSpecification,
            "the connection is not encrypted, and this server requires it (tls = required)",
        );
        let hint = "Connect with sslmode=require, or better sslmode=verify-full.";
        return Err(Closed::Fatal(error.with_hint(hint)));
    }
    let of_address = match peer.parse::<SocketAddr>() {
        Ok(address) => (shared.addresses.enter(address.ip()))
            .ok_or_else(|| Closed::Fatal(too_many_from_there(&shared.addresses)))?,
        Err(_) => Place::default(),
    };
    let database = shared.database.get().map_err(Closed::Fatal)?;
    startup::authenticate(wire, &request.user, &shared.doors, &database, &peer).await?;
    let place = Arc::clone(&shared.places)
        .try_acquire_owned()
        .map_err(|_| Closed::Fatal(too_many_clients(shared.sessions_max)))?;
    if shared.places.available_permits() < shared.sessions_reserved && !is_superuser(&database, &request.user)
    {
        return Err(Closed::Fatal(reserved(shared.sessions_reserved)));
    }
    wire.admitted();
    wire.put(&PgWireBackendMessage::Authentication(Authentication::Ok))?;

    let info = SessionInfo {
        user: request.user,
        database: request.database,
        application: request.application,
        peer,
        encryption: wire.stream().encryption(),
        options: request.options,
    };
    let session = Session::new(database, info).map_err(Closed::Fatal)?;
    let (user, peer) = (&session.info().user, &session.info().peer);
    tracing::info!(target: "millrace::audit", event = "connected", user, peer, session = session.id());
    startup::welcome(wire, session.take_parameter_changes())?;
    let secret = cancel::new_secret(request.version);
    wire.put(&PgWireBackendMessage::BackendKeyData(BackendKeyData::new(
        session.id(),
        secret.clone(),
    )))?;
    let registration = shared
        .cancels
        .register(session.id(), secret, session.cancel_handle());
    let admission = Admission {
        _registration: registration,
        _place: place,
        _of_address: of_address,
    };
    Ok(Some((session, admission)))
}

fn too_many_from_there(addresses: &Addresses) -> SqlError {
    let most = addresses.most().unwrap_or_default();
    SqlError::new(
        SqlState::TooManyConnections,
        "too many connections from this address",
    )
    .with_detail(format!("The limit is {most} connections."))
    .with_hint("Close idle connections, use a pool, or raise connections_per_address_max.")
}

fn too_many_clients(sessions_max: usize) -> SqlError {
    SqlError::new(SqlState::TooManyConnections, "sorry, too many clients already")
        .with_detail(format!("The limit is {sessions_max} connections."))
        .with_hint("Close idle connections, use a pool, or raise connections_max.")
}

fn is_superuser(database: &Database, user: &str) -> bool {
    let catalog = database.catalog();
    let role = catalog.login_role(user).and_then(|user| user.role());
    role.is_some_and(|role| role.superuser)
}

fn reserved(places: usize) -> SqlError {
    let message = "remaining connection slots are reserved for roles with the SUPERUSER attribute";
    SqlError::new(SqlState::TooManyConnections, message)
        .with_detail(format!(
            "The last {places} connections are reserved (superuser_reserved_connections)."
        ))
        .with_hint("Close idle connections, use a pool, or raise connections_max.")
}

/// Returns when a session has done nothing for as long as it may.
async fn idle_for_too_long(timeout: Option<(Duration, SqlError)>) -> SqlError {
    match timeout {
        None => std::future::pending().await,
        Some((timeout, error)) => {
            tokio::time::sleep(timeout).await;
            error
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Takes messages until the connection ends, and says why it did.
    async fn run(&mut self) -> Closed {
        if let Err(closed) = self.ready().await {
            return closed;
        }
        loop {
            let message = match self.receive().await {
                Ok(message) => message,
                Err(closed) => return closed,
            };
            if let Err(closed) = self.handle(message).await {
                return closed;
            }
        }
    }

    /// The next message, or that the server stops. A statement that runs is not interrupted by this: only between two
    /// messages is the server's wish looked at.
    pub(super) async fn receive(&mut self) -> Result<PgWireFrontendMessage, Closed> {
        let idle = idle_for_too_long(self.resting.then(|| self.session.idle_timeout()).flatten());
        let mut idle = std::pin::pin!(idle);
        let inbox = Arc::clone(self.session.inbox());
        let is_told = self.resting && self.session.transaction_status() == TransactionStatus::Idle;
        self.resting = false;
        let message = loop {
            tokio::select! {
                biased;
                () = signalled(&mut self.stopping) => return Err(Closed::ByServer),
                () = self.terminated.terminated() => return Err(Closed::ByServer),
                error = &mut idle => return Err(Closed::Fatal(error)),
                message = self.wire.receive() => break message?,
                () = inbox.wait(), if is_told => {}
            }
            self.put_news()?;
            self.wire.flush().await?;
        };
        match message {
            PgWireFrontendMessage::Terminate(_) => Err(Closed::ByClient),
            message => Ok(message),
        }
    }

    async fn handle(&mut self, message: PgWireFrontendMessage) -> Result<(), Closed> {
        use PgWireFrontendMessage as Frontend;
        if self.skip_to_sync && !matches!(message, Frontend::Sync(_)) {
            return Ok(());
        }
        let done = match message {
            Frontend::Query(query) => return self.simple_query(&query.query).await,
            Frontend::Sync(_) => {
                self.skip_to_sync = false;
                self.sync().await?;
                return self.ready().await;
            }
            Frontend::Parse(parse) => self.parse(parse).await,
            Frontend::Bind(bind) => self.bind(bind).await,
            Frontend::Describe(describe) => self.describe(&describe),
            Frontend::Execute(execute) => self.execute(&execute).await,
            Frontend::Close(close) => self.close(&close),
            Frontend::Flush(_) => self.wire.flush().await.map_err(Failure::Closed),
            // What a client still sends of a COPY that failed.
            Frontend::CopyData(_) | Frontend::CopyDone(_) | Frontend::CopyFail(_) => Ok(()),
            _ => {
                let error = SqlError::new(SqlState::ProtocolViolation, "unexpected message between queries");
                return Err(Closed::Fatal(error));
            }
        };
        match done {
            Ok(()) => self.wire.relieve().await,
            Err(Failure::Closed(closed)) => Err(closed),
            Err(Failure::Sql(error)) => {
                self.skip_to_sync = true;
                self.session.fail_transaction();
                self.report(error)?;
                // The client may be waiting for exactly this before it sends its Sync.
                self.wire.flush().await
            }
        }
    }

    /// The next piece of an answer. `is_slow`: the piece before said that it may take long; what was sent so far reaches the client
    /// first, and meanwhile a client that has gone is noticed, and that the server stops.
    pub(super) async fn next_piece<T>(
        &mut self,
        pieces: &mut (impl Stream<Item = T> + Unpin),
        is_slow: bool,
    ) -> Result<Option<T>, Closed> {
        if !is_slow {
            return Ok(pieces.next().await);
        }
        self.wire.flush().await?;
        tokio::select! {
            biased;
            piece = pieces.next() => Ok(piece),
            () = signalled(&mut self.stopping) => Err(Closed::ByServer),
            closed = self.wire.hung_up() => Err(closed),
        }
    }

    /// Puts an error into the answer, with what was noted before it.
    pub(super) fn report(&mut self, error: SqlError) -> Result<(), Closed> {
        self.put_notices()?;
        // The token at which a statement is wrong may be a password.
        let told = (error.code != SqlState::SyntaxError).then(|| tracing::field::display(&error));
        tracing::debug!(
            session = self.session.id(),
            code = error.code.code(),
            error = told,
            "statement failed"
        );
        self.wire.put(&message::error_response(error))
    }

    /// Puts the session's notices and changed parameters into the answer.
    pub(super) fn put_notices(&mut self) -> Result<(), Closed> {
        for notice in self.session.take_notices() {
            self.wire.put(&message::notice_response(notice))?;
        }
        for (name, value) in self.session.take_parameter_changes() {
            self.wire
                .put(&PgWireBackendMessage::ParameterStatus(ParameterStatus::new(
                    name, value,
                )))?;
        }
        Ok(())
    }

    /// Puts what other sessions tell this one into the answer.
    fn put_news(&mut self) -> Result<(), Closed> {
        for told in self.session.inbox().take() {
            let told = NotificationResponse::new(told.from, told.channel, told.payload);
            self.wire.put(&PgWireBackendMessage::NotificationResponse(told))?;
        }
        Ok(())
    }

    /// Ends an answer: everything is written, and the client may ask again.
    pub(super) async fn ready(&mut self) -> Result<(), Closed> {
        self.put_notices()?;
        if self.session.transaction_status() == TransactionStatus::Idle {
            self.put_news()?;
        }
        self.wire
            .put(&message::ready_for_query(self.session.transaction_status()))?;
        self.resting = true;
        self.wire.flush().await
    }

    /// A statement may be long, but not endless.
    pub(super) fn check_statement_length(&self, sql: &str) -> Result<(), SqlError> {
        let limit = self.shared.statement_bytes_max;
        if sql.len() <= limit {
            return Ok(());
        }
        let message = format!(
            "a statement of {} bytes exceeds the limit of {limit} bytes",
            sql.len()
        );
        Err(SqlError::new(SqlState::ProgramLimitExceeded, message)
            .with_hint("Load rows with COPY, or raise statement_bytes_max."))
    }
}
