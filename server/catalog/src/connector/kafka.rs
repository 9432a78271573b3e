//! `connector = 'kafka'`: the topic, where reading begins or how it is written, and how to get in. Options are called as RisingWave and Flink
//! have them.
//!
//! The definition has the place of a password (see [`super::secret`]), and never the password.

use std::collections::BTreeMap;
use std::path::PathBuf;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::options::{Given, invalid};
use super::registry::RegistryPlace;
use super::secret::Secret;

/// Where a topic is, and how to get in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaPlace {
    /// `host:port`, several with commas between.
    pub brokers: String,
    pub topic: String,
    pub sasl: Option<Sasl>,
    pub tls: Option<Tls>,
}

/// A topic to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaTarget {
    pub place: KafkaPlace,
    /// The topic in which it stands how far each sink is.
    pub progress_topic: String,
    pub compression: Codec,
    /// Where the schemas of the records are, if they are Avro.
    pub registry: Option<RegistryPlace>,
}

/// How records are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

/// A topic to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KafkaDef {
    pub place: KafkaPlace,
    /// Where partitions begin that were never read.
    pub start: Start,
    /// Whether records of transactions that are not committed are read too.
    pub read_uncommitted: bool,
    /// Whether a record that is no row stops the source.
    pub stops_on_error: bool,
}

/// Where reading begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    Earliest,
    Latest,
    /// The first record that is not older, in milliseconds since 1970-01-01 00:00 UTC.
    Timestamp(i64),
    /// By partition; those that are not named begin with their first record.
    Offsets(BTreeMap<i32, i64>),
}

/// A user and how it is shown who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sasl {
    pub mechanism: Mechanism,
    pub user: String,
    pub password: Secret,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Plain,
    ScramSha256,
    ScramSha512,
}

/// An encrypted connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// The authority that signed the broker's certificate, a PEM file; `None`: one of the public ones.
    pub ca: Option<PathBuf>,
}

const BROKERS: [&str; 3] = [
    "properties.bootstrap.server",
    "properties.bootstrap.servers",
    "kafka.brokers",
];
const PASSWORD: &str = "properties.sasl.password";
/// The topic in which sinks keep how far they are, unless an option says otherwise.
const PROGRESS_TOPIC: &str = "millrace-progress";

impl KafkaPlace {
    fn new(given: &mut Given<'_>) -> SqlResult<KafkaPlace> {
        let brokers = given.one_name(&BROKERS)?;
        let brokers =
            brokers.ok_or_else(|| given.missing(BROKERS[0], "'host:port', several with commas between"))?;
        for broker in brokers.split(',') {
            let port = broker
                .trim()
                .rsplit_once(':')
                .map(|(host, port)| (host, port.parse::<u16>()));
            if !matches!(port, Some((host, Ok(1..))) if !host.is_empty()) {
                return Err(invalid(
                    BROKERS[0],
                    brokers,
                    "it must be host:port, several with commas between",
                ));
            }
        }
        let topic = given.one_name(&["topic", "kafka.topic"])?;
        let topic = topic.ok_or_else(|| given.missing("topic", "the name of a topic"))?;
        if topic.is_empty() {
            return Err(invalid("topic", topic, "it must be the name of a topic"));
        }
        let (sasl, tls) = security(given)?;
        Ok(KafkaPlace {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            sasl,
            tls,
        })
    }
}

impl KafkaTarget {
    pub(crate) fn new(given: &mut Given<'_>, is_avro: bool) -> SqlResult<KafkaTarget> {
        const PROGRESS: &str = "progress.topic";
        let place = KafkaPlace::new(given)?;
        let progress_topic = given.text(PROGRESS).unwrap_or(PROGRESS_TOPIC);
        if progress_topic.is_empty() || progress_topic == place.topic {
            let why = "it must be the name of a topic, and not of that of the rows";
            return Err(invalid(PROGRESS, progress_topic, why));
        }
        let codecs = [
            ("none", Codec::None),
            ("gzip", Codec::Gzip),
            ("snappy", Codec::Snappy),
            ("lz4", Codec::Lz4),
            ("zstd", Codec::Zstd),
        ];
        let compression = given.one_of("properties.compression.codec", &codecs)?;
        Ok(KafkaTarget {
            place,
            progress_topic: progress_topic.to_owned(),
            compression: compression.unwrap_or(Codec::None),
            registry: RegistryPlace::given(given, is_avro)?,
        })
    }
}

impl KafkaDef {
    pub(super) fn new(given: &mut Given<'_>) -> SqlResult<KafkaDef> {
        let place = KafkaPlace::new(given)?;
        let levels = [("read_committed", false), ("read_uncommitted", true)];
        let on_error = [("skip", false), ("fail", true)];
        Ok(KafkaDef {
            place,
            start: start(given)?,
            read_uncommitted: given
                .one_of("properties.isolation.level", &levels)?
                .unwrap_or(false),
            stops_on_error: given.one_of("on_error", &on_error)?.unwrap_or(false),
        })
    }
}

fn start(given: &mut Given<'_>) -> SqlResult<Start> {
    const MODE: &str = "scan.startup.mode";
    const TIME: &str = "scan.startup.timestamp.millis";
    const OFFSETS: &str = "scan.startup.specific-offsets";
    let modes = [
        ("earliest", 0),
        ("earliest-offset", 0),
        ("latest", 1),
        ("latest-offset", 1),
        ("timestamp", 2),
        ("specific-offsets", 3),
    ];
    let mode = given.one_of(MODE, &modes)?;
    let time = given.number(TIME, 0..=i64::MAX as u64)?;
    let offsets = given.text(OFFSETS);
    let only_with = |name: &str, mode: &str| {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("option \"{name}\" is for {MODE} = '{mode}'"),
        )
    };
    match (mode, time, offsets) {
        (None | Some(0), None, None) => Ok(Start::Earliest),
        (Some(1), None, None) => Ok(Start::Latest),
        (None | Some(2), Some(ms), None) => Ok(Start::Timestamp(ms as i64)),
        (Some(2), None, _) => Err(given.missing(TIME, "milliseconds since 1970-01-01 00:00 UTC")),
        (None | Some(3), None, Some(text)) => Ok(Start::Offsets(specific(OFFSETS, text)?)),
        (Some(3), _, None) => Err(given.missing(OFFSETS, "'partition:0,offset:42;partition:1,offset:300'")),
        (_, Some(_), _) => Err(only_with(TIME, "timestamp")),
        (_, None, Some(_)) => Err(only_with(OFFSETS, "specific-offsets")),
        (Some(_), None, None) => Ok(Start::Earliest),
    }
}

/// `partition:0,offset:42;partition:1,offset:300`, as Flink has it.
fn specific(option: &str, text: &str) -> SqlResult<BTreeMap<i32, i64>> {
    let one = |part: &str| {
        let (partition, offset) = part.split_once(',')?;
        let partition: i32 = partition.trim().strip_prefix("partition:")?.trim().parse().ok()?;
        let offset: i64 = offset.trim().strip_prefix("offset:")?.trim().parse().ok()?;
        (partition >= 0 && offset >= 0).then_some((partition, offset))
    };
    let parts: Vec<&str> = text.split(';').filter(|part| !part.trim().is_empty()).collect();
    let found: Option<BTreeMap<i32, i64>> = parts.iter().map(|part| one(part)).collect();
    found
        .filter(|found| !found.is_empty() && found.len() == parts.len())
        .ok_or_else(|| {
            invalid(
                option,
                text,
                "it must be like partition:0,offset:42;partition:1,offset:300",
            )
        })
}

fn security(given: &mut Given<'_>) -> SqlResult<(Option<Sasl>, Option<Tls>)> {
    const PROTOCOL: &str = "properties.security.protocol";
    const USER: &str = "properties.sasl.username";
    const MECHANISM: &str = "properties.sasl.mechanism";
    const CA: &str = "properties.ssl.ca.location";
    let protocols = [
        ("PLAINTEXT", (false, false)),
        ("SSL", (false, true)),
        ("SASL_PLAINTEXT", (true, false)),
        ("SASL_SSL", (true, true)),
    ];
    let (with_sasl, with_tls) = given.one_of(PROTOCOL, &protocols)?.unwrap_or((false, false));
    let mechanisms = [
        ("PLAIN", Mechanism::Plain),
        ("SCRAM-SHA-256", Mechanism::ScramSha256),
        ("SCRAM-SHA-512", Mechanism::ScramSha512),
    ];
    let mechanism = given.one_of(MECHANISM, &mechanisms)?;
    let user = given.text(USER);
    let password = Secret::given(given, PASSWORD)?;
    let ca = given.text(CA);
    let for_protocol = |name: &str, protocols: &str| {
        SqlError::new(
            SqlState::InvalidParameterValue,
            format!("option \"{name}\" is for {PROTOCOL} = {protocols}"),
        )
    };
    let sasl = match (with_sasl, user, password) {
        (false, None, None) if mechanism.is_none() => None,
        (false, ..) => return Err(for_protocol(USER, "'SASL_PLAINTEXT' or 'SASL_SSL'")),
        (true, Some(user), Some(password)) => Some(Sasl {
            mechanism: mechanism
                .ok_or_else(|| given.missing(MECHANISM, "'PLAIN', 'SCRAM-SHA-256' or 'SCRAM-SHA-512'"))?,
            user: user.to_owned(),
            password,
        }),
        (true, None, _) => return Err(given.missing(USER, "the name of a user")),
        (true, _, None) => {
            return Err(given.missing(
                PASSWORD,
                "SECRET and the name of a secret; or use the same with .env or .file",
            ));
        }
    };
    let tls = match (with_tls, ca) {
        (false, None) => None,
        (false, Some(_)) => return Err(for_protocol(CA, "'SSL' or 'SASL_SSL'")),
        (true, Some(path)) if !path.starts_with('/') => {
            return Err(invalid(CA, path, "it must be an absolute path"));
        }
        (true, ca) => Some(Tls {
            ca: ca.map(PathBuf::from),
        }),
    };
    Ok((sasl, tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn def(options: &[(&str, &str)]) -> SqlResult<KafkaDef> {
        let all: BTreeMap<String, String> = (options.iter())
            .chain(&[("topic", "t"), ("properties.bootstrap.server", "a:1,b:2")])
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut given = Given::new("kafka", &all);
        let def = KafkaDef::new(&mut given)?;
        given.finish()?;
        Ok(def)
    }

    #[test]
    fn where_it_begins() {
        let start = |options: &[(&str, &str)]| def(options).map(|def| def.start);
        assert_eq!(start(&[]).unwrap(), Start::Earliest);
        assert_eq!(
            start(&[("scan.startup.mode", "latest-offset")]).unwrap(),
            Start::Latest
        );
        assert_eq!(
            start(&[("scan.startup.timestamp.millis", "7")]).unwrap(),
            Start::Timestamp(7)
        );
        let offsets = (
            "scan.startup.specific-offsets",
            "partition:0,offset:42;partition:1,offset:300",
        );
        assert_eq!(
            start(&[offsets]).unwrap(),
            Start::Offsets([(0, 42), (1, 300)].into())
        );
        for wrong in [
            vec![("scan.startup.mode", "middle")],
            vec![("scan.startup.mode", "timestamp")],
            vec![("scan.startup.mode", "specific-offsets")],
            vec![
                ("scan.startup.mode", "earliest"),
                ("scan.startup.timestamp.millis", "7"),
            ],
            vec![("scan.startup.mode", "latest"), offsets],
            vec![("scan.startup.timestamp.millis", "-7")],
            vec![("scan.startup.specific-offsets", "0:42")],
            vec![(
                "scan.startup.specific-offsets",
                "partition:0,offset:1;partition:0,offset:2",
            )],
            vec![("scan.startup.specific-offsets", "")],
        ] {
            assert!(start(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_password_is_never_in_the_definition() {
        let error = def(&[("properties.sasl.password", "hidden")]).unwrap_err();
        assert!(!format!("{error:?}").contains("hidden"));
        let sasl = [
            ("properties.security.protocol", "sasl_ssl"),
            ("properties.sasl.mechanism", "SCRAM-SHA-512"),
            ("properties.sasl.username", "ann"),
            ("properties.sasl.password.env", "KAFKA_PASSWORD"),
        ];
        let found = def(&sasl).unwrap();
        assert_eq!(
            found.place.sasl.unwrap().password,
            Secret::Env("KAFKA_PASSWORD".to_owned())
        );
        assert_eq!(found.place.tls, Some(Tls { ca: None }));
        for without in 0..4 {
            let mut options = sasl.to_vec();
            options.remove(without);
            assert!(def(&options).is_err(), "{options:?}");
        }
        assert!(def(&[("properties.ssl.ca.location", "/ca.pem")]).is_err());
        for twice in ["properties.bootstrap.servers", "kafka.brokers", "kafka.topic"] {
            let error = def(&[(twice, "x:1")]).unwrap_err();
            assert!(error.message.contains("exclude each other"), "{error:?}");
        }
    }
}
