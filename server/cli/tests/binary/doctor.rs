//! `millrace doctor`: what it finds, and that it changes nothing.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::serve::start_in;
use crate::{run, text_of};

#[test]
fn what_would_keep_a_server_from_running_is_told() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let free = ["doctor", "--pg", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"];
    let (status, out, error) = run(&[&free[..], &[text_of(&data)]].concat());
    assert_eq!(status, 0, "{out}{error}");
    for expected in [
        "ok    configuration",
        "does not exist; it will be made",
        "disk space",
        "durability",
        "open files",
        "memory",
        "cores",
        " 0 bad",
    ] {
        assert!(out.contains(expected), "{expected} is missing in\n{out}");
    }
    assert!(!data.exists(), "it made the directory");

    // Somebody else's directory, a port that is taken, a newer version, an open directory, one in use.
    fs::create_dir(&data).unwrap();
    fs::write(data.join("thesis.tex"), "x").unwrap();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap().to_string();
    let (status, out, _) = run(&[
        "doctor",
        "--pg",
        &address,
        "--http",
        "127.0.0.1:0",
        "--data",
        text_of(&data),
    ]);
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("FAIL  data") && out.contains("thesis.tex"), "{out}");
    assert!(out.contains("FAIL  pg port") && out.contains(&address), "{out}");

    fs::remove_file(data.join("thesis.tex")).unwrap();
    fs::write(data.join("FORMAT"), "millrace data directory, format 99\n").unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let (status, out, _) = run(&[&free[..], &[text_of(&data)]].concat());
    assert_eq!(status, 1, "{out}");
    assert!(out.contains("FAIL  data") && out.contains("format 99"), "{out}");
    assert!(out.contains("warn  permissions") && out.contains("755"), "{out}");

    let used = root.path().join("used");
    let (mut child, _, _) = start_in(&used, &["--stop-at-eof"]);
    let (status, out, _) = run(&[&free[..], &[text_of(&used)]].concat());
    assert_eq!(status, 0, "{out}");
    assert!(
        out.contains("warn  data") && out.contains("in use by process"),
        "{out}"
    );
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());

    let config = root.path().join("millrace.toml");
    fs::write(&config, "memory_limt = \"1GB\"\n").unwrap();
    let (status, out, _) = run(&["doctor", "--config", text_of(&config)]);
    assert_eq!(status, 1, "{out}");
    assert!(
        out.contains("FAIL  configuration") && out.contains("memory_limit"),
        "{out}"
    );
}

#[test]
fn what_contradicts_itself_or_is_not_there_is_told() {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("millrace.toml");
    // A port that was free a moment ago.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let copy = root.path().join("copy");
    fs::write(&copy, "a file").unwrap();
    let text = format!(
        "pg = '{gone}'\nhttp = '{gone}'\ncluster = '{gone}'\notlp_endpoint = 'http://{gone}'\npassword = 'abracadabra'\n\
         log_url = 'file://{}'\nmemory_limit = '900TB'\ndata = '{}'\n",
        copy.display(),
        root.path().join("data").display()
    );
    fs::write(&config, text).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    let (status, out, _) = run(&["doctor", "--config", text_of(&config)]);
    assert_eq!(status, 1, "{out}");
    for expected in [
        "FAIL  secrets        mode 644",
        "which has password: chmod 640",
        "ok    pg port",
        "FAIL  http port",
        "is where the pg port is, too",
        "FAIL  cluster port",
        "FAIL  cluster token  cluster needs cluster_token",
        "FAIL  log_url",
        "is a file: choose a directory",
        "warn  otlp_endpoint",
        "FAIL  memory         memory_limit is",
    ] {
        assert!(out.contains(expected), "{expected} is missing in\n{out}");
    }
    assert!(!out.contains("abracadabra"), "{out}");

    fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
    let (_, out, _) = run(&["doctor", "--config", text_of(&config)]);
    assert!(out.contains("ok    secrets"), "{out}");

    // Open to the network without a password: told, with all the rest.
    let data = root.path().join("data");
    let (status, out, _) = run(&[
        "doctor",
        "--data",
        text_of(&data),
        "--pg",
        "127.0.0.1:0",
        "--http",
        "0.0.0.0:0",
    ]);
    assert_eq!(status, 1, "{out}");
    assert!(
        out.contains("FAIL  exposure       http") && out.contains("ok    memory"),
        "{out}"
    );
}
