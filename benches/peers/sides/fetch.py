"""What the sides need, in one folder: an environment of Python with DuckDB and DataFusion, Flink's jars, the programs of ours that
drive the peers, and the input."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ["duckdb==1.5.5", "duckdb-extension-tpch==1.5.5", "datafusion==55.0.0", "pyarrow", "psycopg[binary]"]
FLINK = "apache-flink-libraries==2.3.0"
YSB_EVENTS = 10_000_000
NEXMARK_EPOCHS = 108_800


def command(*words, **said):
    print("+", " ".join(map(str, words)), flush=True)
    subprocess.run([str(word) for word in words], check=True, **said)


def all_of(cache):
    """Fetches and builds what is not there yet."""
    cache.mkdir(parents=True, exist_ok=True)
    python = cache / "python"
    if not (python / "bin" / "python").exists():
        command(sys.executable, "-m", "venv", python)
    command(python / "bin" / "pip", "install", "--quiet", *PACKAGES)
    flink = cache / "flink"
    if not flink.exists():
        wheels = cache / "wheels"
        command(python / "bin" / "pip", "download", "--quiet", "--no-deps", FLINK, "--dest", wheels)
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            wheel.extractall(flink.with_suffix(".new"))
        flink.with_suffix(".new").rename(flink)
        shutil.rmtree(wheels)
    build(cache)
    data = cache / "data"
    for name, size in (("ysb", YSB_EVENTS), ("nexmark", NEXMARK_EPOCHS)):
        if not (data / name / "whole").exists():
            command("java", "-cp", cache / "input", "Gen", name, data / name, size)
            (data / name / "whole").touch()
    if not (data / "tpch" / "whole").exists():
        command(python / "bin" / "python", HERE / "input" / "tpch.py", data / "tpch")
        (data / "tpch" / "whole").touch()


def build(cache):
    """The programs of this folder."""
    made = cache / "input"
    made.mkdir(exist_ok=True)
    command("javac", "-nowarn", "-d", made, *sorted((HERE / "input").glob("*.java")))
    made = cache / "flink-race"
    services = made / "META-INF" / "services"
    services.mkdir(parents=True, exist_ok=True)
    command("javac", "-nowarn", "-d", made, "-cp", flink_jars(cache), *sorted((HERE / "flink").glob("*.java")))
    (services / "org.apache.flink.table.factories.Factory").write_text("Check\nAdsLookup\n")
    (made / "log4j2.properties").write_text("rootLogger.level = OFF\n")
    surroundings = dict(os.environ, CARGO_TARGET_DIR=str(cache / "differential"))
    command("cargo", "build", "--release", "--quiet", "--manifest-path", HERE / "differential" / "Cargo.toml", env=surroundings)


def flink_jars(cache):
    return f"{cache}/flink/pyflink/lib/*"


def enter(cache):
    """Goes on in the environment of Python that was fetched."""
    python = cache / "python" / "bin" / "python"
    if not python.exists() or not (cache / "data").exists():
        raise SystemExit(f"{cache} has no peers yet: race.py fetch")
    if pathlib.Path(sys.prefix).resolve() != (cache / "python").resolve():
        os.execv(python, [str(python), *sys.argv])
