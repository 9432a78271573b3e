//! A real schema registry beside the server: Apicurio's, by its interface that is Confluent's.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::kafka::free_ports;

/// The variable that says where the registry was unpacked: its jar, and others in `lib`.
pub const REGISTRY: &str = "MILLRACE_REGISTRY";

/// A registry, as long as this is held.
pub struct Registry {
    address: String,
    child: Child,
    client: reqwest::Client,
}

impl Registry {
    /// Starts one; `None`: it is not there.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start(directory: &Path) -> Result<Option<Registry>, Failure> {
        let Some(home) = std::env::var_os(REGISTRY).map(PathBuf::from) else {
            return Ok(None);
        };
        let mut path = vec![];
        for folder in [home.clone(), home.join("lib")] {
            for entry in std::fs::read_dir(folder)? {
                let entry = entry?.path();
                if entry.extension().is_some_and(|extension| extension == "jar") {
                    path.push(entry.display().to_string());
                }
            }
        }
        // The one that starts it comes first.
        path.sort_by_key(|jar| !jar.ends_with("-runner.jar"));
        std::fs::create_dir_all(directory)?;
        let log = std::fs::File::create(directory.join("registry.log"))?;
        let [port] = free_ports()?;
        let child = Command::new("java")
            .arg("-Xmx400m")
            .arg("-Dquarkus.http.host=127.0.0.1")
            .arg(format!("-Dquarkus.http.port={port}"))
            .arg("-Dapicurio.storage.kind=sql")
            .arg("-cp")
            .arg(path.join(":"))
            .arg("io.quarkus.runner.GeneratedMain")
            .current_dir(directory)
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()?;
        let registry = Registry {
            address: format!("http://127.0.0.1:{port}/apis/ccompat/v7"),
            child,
            client: reqwest::Client::new(),
        };
        let began = Instant::now();
        while registry
            .client
            .get(format!("{}/subjects", registry.address))
            .send()
            .await
            .is_err()
        {
            if began.elapsed() > Duration::from_secs(90) {
                return Err("the schema registry did not start".into());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(Some(registry))
    }

    /// What `schema.registry` is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Registers a schema, and tells its number.
    ///
    /// # Errors
    /// The registry refuses it.
    pub async fn register(
        &self,
        subject: &str,
        language: &str,
        schema: &str,
        references: serde_json::Value,
    ) -> Result<u32, Failure> {
        let body = serde_json::json!({ "schema": schema, "schemaType": language, "references": references });
        let answer = self
            .client
            .post(format!("{}/subjects/{subject}/versions", self.address))
            .header("Content-Type", "application/vnd.schemaregistry.v1+json")
            .body(body.to_string())
            .send()
            .await?
            .text()
            .await?;
        let answer: serde_json::Value = serde_json::from_str(&answer)?;
        let id = answer["id"]
            .as_u64()
            .ok_or_else(|| format!("{subject}: {answer}"))?;
        Ok(u32::try_from(id)?)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
