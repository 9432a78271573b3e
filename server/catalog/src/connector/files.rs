//! `connector = 'file' | 's3'`: a directory of the server's machine, or a prefix of a bucket, into which files come.

use std::path::PathBuf;
use std::time::Duration;

use millrace_postgres::error::{SqlError, SqlResult, SqlState};

use super::options::{Given, invalid};
use super::secret::Secret;

/// What is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesDef {
    pub place: FilesPlace,
    /// Which files, by a pattern for their path within the place; none: all.
    pub pattern: Option<String>,
    /// How they are compressed; none: as their names end.
    pub compression: Option<Compression>,
    /// How often it is looked for new ones.
    pub refresh: Duration,
    /// Whether what is no row stops the source.
    pub stops_on_error: bool,
}

/// Where files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilesPlace {
    /// A directory of the server's machine.
    Directory(PathBuf),
    Bucket(BucketPlace),
}

impl FilesPlace {
    /// As one writes it.
    pub fn shown(&self) -> String {
        match self {
            FilesPlace::Directory(path) => path.display().to_string(),
            FilesPlace::Bucket(place) => format!("s3://{}/{}", place.bucket, place.prefix),
        }
    }
}

/// A bucket of S3, or of what speaks like it, and how to get in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketPlace {
    pub bucket: String,
    /// What all names begin with, without a slash at either end; empty: nothing.
    pub prefix: String,
    pub region: Option<String>,
    /// Where it is, if not at Amazon's: `http(s)://host[:port]`.
    pub endpoint: Option<String>,
    /// The id of an access key, and where its secret is; none: as the server's environment or machine says.
    pub key: Option<(String, Secret)>,
}

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

const SECRET: &str = "s3.credentials.secret";
const ENDPOINT: &str = "s3.endpoint_url";

impl FilesDef {
    /// What the options say, of a connector of this name.
    ///
    /// # Errors
    /// One is missing, or has a value that it cannot have.
    pub(super) fn new(name: &str, given: &mut Given<'_>) -> SqlResult<FilesDef> {
        const REFRESH: &str = "refresh.interval";
        let place = match name {
            "s3" => FilesPlace::Bucket(BucketPlace::new(given)?),
            _ => FilesPlace::Directory(directory(given)?),
        };
        let by_default = match place {
            FilesPlace::Directory(_) => 1_000_000,
            FilesPlace::Bucket(_) => 10_000_000,
        };
        let refresh = given.length(REFRESH)?.unwrap_or(by_default);
        if !(100_000..=86_400_000_000).contains(&refresh) {
            return Err(SqlError::new(
                SqlState::InvalidParameterValue,
                format!("option \"{REFRESH}\" must be from 100 ms to 1 day"),
            ));
        }
        let compressions = [
            ("none", Compression::None),
            ("gzip", Compression::Gzip),
            ("zstd", Compression::Zstd),
            ("bzip2", Compression::Bzip2),
            ("xz", Compression::Xz),
        ];
        let on_error = [("skip", false), ("fail", true)];
        let pattern = given.text("match_pattern");
        if let Some(pattern) = pattern
            && let Err(error) = glob::Pattern::new(pattern)
        {
            return Err(invalid("match_pattern", pattern, &error.to_string()));
        }
        Ok(FilesDef {
            place,
            pattern: pattern.map(str::to_owned),
            compression: given.one_of("compression_format", &compressions)?,
            refresh: Duration::from_micros(refresh),
            stops_on_error: given.one_of("on_error", &on_error)?.unwrap_or(false),
        })
    }
}

fn directory(given: &mut Given<'_>) -> SqlResult<PathBuf> {
    const NAMES: [&str; 3] = ["path", "fs.path", "posix_fs.root"];
    let path = NAMES.map(|name| given.text(name)).into_iter().flatten().next();
    let path = path.ok_or_else(|| given.missing("path", "an absolute path"))?;
    match path.starts_with('/') {
        true => Ok(path.into()),
        false => Err(invalid("path", path, "it must be an absolute path")),
    }
}

impl BucketPlace {
    /// What the options say.
    ///
    /// # Errors
    /// One is missing, or has a value that it cannot have.
    pub fn new(given: &mut Given<'_>) -> SqlResult<BucketPlace> {
        const KEY: &str = "s3.credentials.access";
        let bucket = given.text("s3.bucket_name");
        let bucket = bucket.ok_or_else(|| given.missing("s3.bucket_name", "the name of a bucket"))?;
        if bucket.is_empty() || bucket.contains(['/', ' ']) {
            return Err(invalid(
                "s3.bucket_name",
                bucket,
                "it must be the name of a bucket",
            ));
        }
        let prefix = given.text("path").unwrap_or_default().trim_matches('/');
        let region = given.text("s3.region_name");
        let endpoint = given.text(ENDPOINT).map(|url| url.trim_end_matches('/'));
        if let Some(url) = endpoint {
            let host = url
                .strip_prefix("http://")
                .or_else(|| url.strip_prefix("https://"));
            if !host.is_some_and(|host| !host.is_empty() && !host.contains(['@', '?', '#', ' '])) {
                return Err(invalid(
                    ENDPOINT,
                    url,
                    "it must be http://host:port or https://host:port",
                ));
            }
        }
        if region.is_none() && endpoint.is_none() {
            return Err(given.missing("s3.region_name", "the region of the bucket, 'eu-central-1' say"));
        }
        let id = given.text(KEY);
        let key = match (id, Secret::given(given, SECRET)?) {
            (None, None) => None,
            (Some(id), Some(secret)) => Some((id.to_owned(), secret)),
            (Some(_), None) => {
                return Err(given.missing(
                    &format!("{SECRET}.env"),
                    "the name of an environment variable with the key's secret; or use the same with .file",
                ));
            }
            (None, Some(_)) => return Err(given.missing(KEY, "the id of an access key")),
        };
        Ok(BucketPlace {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            region: region.map(str::to_owned),
            endpoint: endpoint.map(str::to_owned),
            key,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn def(name: &str, options: &[(&str, &str)]) -> SqlResult<FilesDef> {
        let all: BTreeMap<String, String> = (options.iter())
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut given = Given::new(name, &all);
        let def = FilesDef::new(name, &mut given)?;
        given.finish()?;
        Ok(def)
    }

    #[test]
    fn options_say_what_is_read() {
        let files = def(
            "file",
            &[
                ("path", "/in"),
                ("match_pattern", "*.json"),
                ("refresh.interval", "2 s"),
            ],
        );
        let files = files.unwrap();
        assert_eq!(files.place, FilesPlace::Directory("/in".into()));
        assert_eq!(files.refresh, Duration::from_secs(2));
        let bucket = [
            ("s3.bucket_name", "b"),
            ("path", "/a/b/"),
            ("s3.endpoint_url", "http://127.0.0.1:9000/"),
            ("s3.credentials.access", "id"),
            ("s3.credentials.secret.env", "S3_SECRET"),
        ];
        let FilesPlace::Bucket(place) = def("s3", &bucket).unwrap().place else {
            panic!("it is a bucket")
        };
        assert_eq!(
            (place.prefix.as_str(), place.endpoint.as_deref()),
            ("a/b", Some("http://127.0.0.1:9000"))
        );
        for wrong in [
            vec![("path", "in")],
            vec![],
            vec![("path", "/in"), ("match_pattern", "[")],
            vec![("path", "/in"), ("refresh.interval", "1 ms")],
            vec![("path", "/in"), ("compression_format", "rar")],
            vec![("path", "/in"), ("s3.bucket_name", "b")],
        ] {
            assert!(def("file", &wrong).is_err(), "{wrong:?}");
        }
        for without in [0, 2, 3, 4] {
            let mut options = bucket.to_vec();
            options.remove(without);
            assert!(def("s3", &options).is_err(), "{options:?}");
        }
        let mut options = bucket.to_vec();
        options.push(("s3.credentials.secret", "hidden"));
        assert!(!format!("{:?}", def("s3", &options).unwrap_err()).contains("hidden"));
    }
}
