//! The files of the page, whole and compressed.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

use crate::flights;
use crate::gzip::{compressed, decompressed};

/// What in the page stands for the nonce of its styles.
const NONCE: &str = "{{nonce}}";
const PAGE: &str = include_str!("../dist/index.html");

/// The page. Styles that are made while it is shown carry the nonce, which the policy in the answer's header names.
pub fn page(nonce: &str) -> String {
    PAGE.replace(NONCE, nonce)
}

/// The bytes of a file, as they are stored.
enum Stored {
    Plain(&'static [u8]),
    Gzip(&'static [u8]),
    /// Put together when it is asked for.
    Made(fn() -> String),
}

/// A file that the page asks for.
pub struct File {
    /// Below `/console/`.
    pub path: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    stored: Stored,
    forms: OnceLock<Forms>,
}

struct Forms {
    plain: Vec<u8>,
    gzip: Vec<u8>,
    tag: String,
}

const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const CSV: &str = "text/csv; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// All of them: the one place that names them.
static FILES: [File; 9] = [
    File::new(
        "app.js",
        JAVASCRIPT,
        Stored::Plain(include_bytes!("../dist/app.js")),
    ),
    File::new("app.css", CSS, Stored::Plain(include_bytes!("../dist/app.css"))),
    File::new("icon.svg", SVG, Stored::Plain(include_bytes!("../dist/icon.svg"))),
    File::new(
        "third-party.txt",
        TEXT,
        Stored::Plain(include_bytes!("../dist/third-party.txt")),
    ),
    File::new(
        "flights.json",
        "application/json",
        Stored::Made(flights::description),
    ),
    File::new(
        "flights.ndjson",
        "application/x-ndjson",
        Stored::Gzip(flights::FLIGHTS),
    ),
    File::new(
        "airlines.csv",
        CSV,
        Stored::Gzip(flights::TABLE_FILES[0].compressed),
    ),
    File::new(
        "airports.csv",
        CSV,
        Stored::Gzip(flights::TABLE_FILES[1].compressed),
    ),
    File::new(
        "planes.csv",
        CSV,
        Stored::Gzip(flights::TABLE_FILES[2].compressed),
    ),
];

/// A file by its path below `/console/`.
pub fn file(path: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.path == path)
}

impl File {
    const fn new(path: &'static str, media_type: &'static str, stored: Stored) -> File {
        File {
            path,
            media_type,
            stored,
            forms: OnceLock::new(),
        }
    }

    /// The file as it is.
    pub fn plain(&self) -> &[u8] {
        &self.forms().plain
    }

    /// The file compressed with gzip.
    pub fn gzip(&self) -> &[u8] {
        &self.forms().gzip
    }

    /// Another one if the file is another one.
    pub fn tag(&self) -> &str {
        &self.forms().tag
    }

    /// Both forms, made when the first one is asked for.
    fn forms(&self) -> &Forms {
        self.forms.get_or_init(|| {
            let (plain, gzip) = match self.stored {
                Stored::Plain(bytes) => (bytes.to_vec(), compressed(bytes)),
                Stored::Gzip(bytes) => (decompressed(bytes), bytes.to_vec()),
                Stored::Made(make) => {
                    let bytes = make().into_bytes();
                    let gzip = compressed(&bytes);
                    (bytes, gzip)
                }
            };
            let mut hasher = DefaultHasher::new();
            plain.hash(&mut hasher);
            let tag = format!("\"{:016x}\"", hasher.finish());
            Forms { plain, gzip, tag }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_can_be_read_in_both_forms() {
        for file in &FILES {
            assert!(!file.plain().is_empty(), "{}", file.path);
            assert_eq!(decompressed(file.gzip()), file.plain(), "{}", file.path);
        }
        let tags: BTreeSet<&str> = FILES.iter().map(File::tag).collect();
        assert_eq!(tags.len(), FILES.len());
        assert!(file("index.html").is_none() && file("../Cargo.toml").is_none());
    }

    /// What the page loads is here, and nothing comes from elsewhere.
    #[test]
    fn the_page_loads_its_own_files_only() {
        let page = page("abc");
        assert!(page.contains("content=\"abc\"") && !page.contains(NONCE));
        let texts = page.split(['"', '\'']);
        let loaded: Vec<&str> = texts
            .filter(|text| text.starts_with('/') || text.contains("://"))
            .collect();
        assert_eq!(loaded.len(), 3);
        for address in loaded {
            let path = address.strip_prefix("/console/");
            assert!(path.is_some_and(|path| file(path).is_some()), "{address}");
        }
    }

    /// What goes over the wire when the page is opened for the first time: 179 kB were estimated for the libraries.
    #[test]
    fn it_is_small() {
        let sent: usize = ["app.js", "app.css"]
            .iter()
            .filter_map(|path| Some(file(path)?.gzip().len()))
            .sum();
        assert!(sent < 256 * 1024, "{sent} bytes");
    }
}
