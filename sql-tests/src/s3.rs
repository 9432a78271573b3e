//! A real server of S3 beside the server: moto's.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use object_store::aws::{AmazonS3, AmazonS3Builder};

use crate::Failure;
use crate::kafka::free_ports;

/// The variable that says where the program `moto_server` is.
pub const S3: &str = "MILLRACE_S3_SERVER";
/// A key that it lets in, and its secret.
pub const KEY: (&str, &str) = ("testing", "testing-secret");

/// A server, as long as this is held.
pub struct Bucket {
    address: String,
    child: Child,
}

impl Bucket {
    /// Starts one, and makes a bucket; `None`: it is not there.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(name: &str) -> Result<Option<Bucket>, Failure> {
        let Some(program) = std::env::var_os(S3).map(PathBuf::from) else {
            return Ok(None);
        };
        let [port] = free_ports()?;
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let bucket = Bucket {
            address: format!("http://127.0.0.1:{port}"),
            child,
        };
        let client = reqwest::Client::new();
        let began = Instant::now();
        loop {
            match client.put(format!("{}/{name}", bucket.address)).send().await {
                Ok(answer) if answer.status().is_success() => return Ok(Some(bucket)),
                _ if began.elapsed() > Duration::from_secs(60) => {
                    return Err("the S3 server did not start".into());
                }
                _ => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// What `s3.endpoint_url` is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A client of the library.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn client(&self, name: &str) -> Result<AmazonS3, Failure> {
        let builder = AmazonS3Builder::new()
            .with_endpoint(&self.address)
            .with_allow_http(true)
            .with_bucket_name(name)
            .with_access_key_id(KEY.0)
            .with_secret_access_key(KEY.1);
        Ok(builder.build()?)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
