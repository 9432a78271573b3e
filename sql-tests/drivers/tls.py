#!/usr/bin/env python3
"""Clients over TLS: each logs in to a millrace that requires it, checks its certificate, and is refused what it must be refused.

    sql-tests/drivers/tls.py [--only NAME] [--no-install]

The server's certificate is signed by an authority that openssl makes here, for the name localhost. Each client must get in with that
authority, with its password bound to the connection where the client can do that, and must not get in without TLS, or to a server whose
certificate another authority has signed or that has another name. What is not there (a program, a driver) is said and left out.
"""

import argparse
import base64
import hashlib
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.dirname(HERE))
import run
from servers import ROOT, free_port

PASSWORD = "open sesame"
SECONDS = 60


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_certificates(directory):
    """An authority that signs a certificate for localhost, and another that signs nothing here."""
    for name in ("authority", "other"):
        openssl(directory, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                "-keyout", f"{name}.key", "-out", f"{name}.pem")
    openssl(directory, "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr")
    with open(os.path.join(directory, "server.ext"), "w") as file:
        file.write("subjectAltName = DNS:localhost\n")
    openssl(directory, "x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial",
            "-days", "2", "-extfile", "server.ext", "-out", "server.pem")


class Server:
    """A millrace that requires TLS and a password."""

    def __init__(self, directory):
        make_certificates(directory)
        self.directory, self.port, self.http = directory, free_port(), free_port()
        binary = os.environ.get("DRIVERS_MILLRACE", os.path.join(ROOT, "target", "debug", "millrace"))
        environment = dict(os.environ, MILLRACE_PASSWORD=PASSWORD, MILLRACE_TLS="required", MILLRACE_TLS_CERT=self.file("server.pem"),
                           MILLRACE_TLS_KEY=self.file("server.key"))
        with open(self.file("log"), "w") as log:
            command = [binary, "serve", "--data", self.file("data"), "--pg", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{self.http}"]
            self.child = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def file(self, name):
        return os.path.join(self.directory, name)

    def is_ready(self):
        context = ssl.create_default_context(cafile=self.file("authority.pem"))
        for _ in range(1200):
            if self.child.poll() is not None:
                return False
            try:
                with socket.create_connection(("127.0.0.1", self.http), 5) as plain, context.wrap_socket(plain, server_hostname="localhost") as wire:
                    wire.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                    if b" 200 " in wire.recv(64):
                        return True
            except OSError:
                pass
            time.sleep(0.05)
        return False

    def stop(self):
        self.child.terminate()
        self.child.wait()


def said(command, **options):
    """What a program says, and whether it was content."""
    environment = {**os.environ, "PGPASSWORD": PASSWORD, "PGCONNECT_TIMEOUT": "30", **options.pop("env", {})}
    try:
        done = subprocess.run(command, env=environment, timeout=SECONDS, text=True, errors="replace", stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, **options)
        return done.returncode == 0, done.stdout
    except subprocess.TimeoutExpired as late:
        return False, "it took too long: " + (late.stdout or b"").decode(errors="replace")


def case(name, refusal, outcome):
    """A case's name, whether it ended as it must (in, or refused in these words), and what was said."""
    is_in, told = outcome
    return name, is_in if refusal is None else not is_in and refusal in told, told


def libpq(server, **changed):
    """A connection string of libpq; an entry that is None is left out."""
    entries = {"host": "localhost", "hostaddr": "127.0.0.1", "port": server.port, "user": "millrace", "dbname": "millrace",
               "sslmode": "verify-full", "sslrootcert": server.file("authority.pem"), "channel_binding": "require"}
    entries.update(changed)
    return " ".join(f"{key}={value}" for key, value in entries.items() if value is not None)


# How each must end: in, or what its error says.
LIBPQ = [
    ("verify-full, bound", {}, None),
    ("another authority", {"sslrootcert": "other.pem"}, "certificate verify failed"),
    ("another name", {"host": "127.0.0.1"}, "does not match host name"),
    ("without TLS", {"sslmode": "disable", "channel_binding": None}, "not encrypted"),
]


def psql(server):
    if not shutil.which("psql"):
        return
    for name, changed, refusal in LIBPQ:
        if "sslrootcert" in changed:
            changed = {"sslrootcert": server.file(changed["sslrootcert"])}
        yield case(name, refusal, said(["psql", "-XAtc", "SELECT 'in'", libpq(server, **changed)]))
    yield case("a wrong password", "password authentication failed", said(["psql", "-XAtc", "SELECT 'in'", libpq(server)], env={"PGPASSWORD": "x"}))
    seen = "SELECT ssl, version IN ('TLSv1.2', 'TLSv1.3'), cipher LIKE 'TLS_%', bits >= 128, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    is_in, told = said(["psql", "-XAtc", seen, libpq(server)])
    yield case("what pg_stat_ssl says", None, (is_in and told.strip() == "t|t|t|t|", told))


def curl(server):
    if not shutil.which("curl"):
        return
    ask = ["curl", "-sS", "--fail-with-body", "-u", f"millrace:{PASSWORD}", "-d", "SELECT 'in'", "-H", "Content-Type: text/plain", "-H", "Accept: text/csv"]
    url = f"https://localhost:{server.http}/api/sql"
    known = ["--cacert", server.file("authority.pem")]
    yield case("a known authority", None, said([*ask, *known, url]))
    yield case("another authority", "certificate", said([*ask, "--cacert", server.file("other.pem"), url]))
    yield case("another name", "127.0.0.1", said([*ask, *known, f"https://127.0.0.1:{server.http}/api/sql"]))
    yield case("without TLS", "https://", said([*ask, f"http://localhost:{server.http}/api/sql"]))
    yield case("a wrong password", "missing or wrong", said([*ask, "-u", "millrace:x", *known, url]))


def browser(server):
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if not program:
        return
    key = subprocess.run(["openssl", "x509", "-in", server.file("server.pem"), "-pubkey", "-noout"], check=True, stdout=subprocess.PIPE).stdout
    der = subprocess.run(["openssl", "pkey", "-pubin", "-outform", "der"], input=key, check=True, stdout=subprocess.PIPE).stdout
    pin = base64.b64encode(hashlib.sha256(der).digest()).decode()
    page = [program, "--no-sandbox", "--disable-gpu", f"--user-data-dir={server.file('browser')}", "--dump-dom"]
    url = f"https://localhost:{server.http}/"
    # The console is a page about other things than a certificate that nobody knows.
    for name, more, is_shown in [("a known key", [f"--ignore-certificate-errors-spki-list={pin}"], True), ("an unknown authority", [], False)]:
        _, told = said([*page, *more, url])
        yield name, ('<div id="app">' in told) == is_shown, told[-2000:]


def script(server, command, file_name, text):
    """A script with what it needs to know of the server in its environment."""
    path = server.file(file_name)
    with open(path, "w") as file:
        file.write(text)
    env = {"TLS_PORT": str(server.port), "TLS_CA": server.file("authority.pem"), "TLS_OTHER": server.file("other.pem"), "TLS_DIRECTORY": server.directory,
           "NODE_PATH": os.path.join(run.TOOLS, "node_modules"), "PYTHONWARNINGS": "ignore"}
    _, told = said([*command, path], env=env)
    for line in told.splitlines():
        name, arrow, outcome = line.partition(" => ")
        if arrow:
            yield name, (outcome == "in") == name.endswith("a known authority"), outcome
    if " => " not in told:
        yield "it runs", False, told


PYTHON = '''
import asyncio, os, ssl
import asyncpg, psycopg, psycopg2
port, ca, other = int(os.environ["TLS_PORT"]), os.environ["TLS_CA"], os.environ["TLS_OTHER"]
def told(name, connect):
    try:
        print(name, "=>", connect(), flush=True)
    except Exception as error:
        print(name, "=>", type(error).__name__, str(error).replace("\\n", " "), flush=True)
where = f"host=localhost hostaddr=127.0.0.1 port={port} user=millrace dbname=millrace"
full = "sslmode=verify-full channel_binding=require sslrootcert="
def three(more):
    with psycopg.connect(f"{where} {more}") as db:
        return db.execute("SELECT 'in'").fetchone()[0]
def two(more):
    db = psycopg2.connect(f"{where} {more}")
    cursor = db.cursor()
    cursor.execute("SELECT 'in'")
    return cursor.fetchone()[0]
for name, connect in (("psycopg", three), ("psycopg2", two)):
    told(f"{name}: a known authority", lambda: connect(full + ca))
    told(f"{name}: another authority", lambda: connect(full + other))
    told(f"{name}: without TLS", lambda: connect("sslmode=disable"))
def asynchronous(context, host="localhost"):
    async def ask():
        db = await asyncpg.connect(host=host, port=port, user="millrace", database="millrace", password=os.environ["PGPASSWORD"], ssl=context)
        try:
            return await db.fetchval("SELECT 'in'")
        finally:
            await db.close()
    return asyncio.run(ask())
told("asyncpg: a known authority", lambda: asynchronous(ssl.create_default_context(cafile=ca)))
told("asyncpg: another authority", lambda: asynchronous(ssl.create_default_context(cafile=other)))
told("asyncpg: another name", lambda: asynchronous(ssl.create_default_context(cafile=ca), "127.0.0.1"))
told("asyncpg: without TLS", lambda: asynchronous(False))
'''

NODE = '''
const fs = require('fs');
const { Client } = require('pg');
const postgres = require('postgres');
const port = Number(process.env.TLS_PORT), password = process.env.PGPASSWORD;
const ca = fs.readFileSync(process.env.TLS_CA), other = fs.readFileSync(process.env.TLS_OTHER);
const ways = {
  'node-postgres': async (ssl) => {
    const db = new Client({ host: 'localhost', port, user: 'millrace', database: 'millrace', password, ssl, enableChannelBinding: true });
    await db.connect();
    const rows = (await db.query("SELECT 'in' AS x")).rows;
    await db.end();
    return rows[0].x;
  },
  'postgres.js': async (ssl) => {
    const sql = postgres({ host: 'localhost', port, user: 'millrace', database: 'millrace', password, ssl, max: 1 });
    try { return (await sql`SELECT 'in' AS x`)[0].x; } finally { await sql.end({ timeout: 1 }); }
  },
};
(async () => {
  for (const [name, connect] of Object.entries(ways)) {
    for (const [what, ssl] of [['a known authority', { ca }], ['another authority', { ca: other }], ['without TLS', false]]) {
      let outcome;
      try { outcome = await connect(ssl); } catch (error) { outcome = String(error.message || error.code).replace(/\\n/g, ' '); }
      console.log(`${name}: ${what} => ${outcome}`);
    }
  }
  process.exit(0);
})();
'''

JAVA = '''
import java.sql.*;
import java.util.Properties;
public class Tls {
    static void told(String name, String mode, String ca, String host, boolean bound) {
        Properties properties = new Properties();
        properties.put("user", "millrace");
        properties.put("password", System.getenv("PGPASSWORD"));
        properties.put("sslmode", mode);
        if (ca != null) properties.put("sslrootcert", ca);
        if (bound) properties.put("channelBinding", "require");
        String outcome;
        try (Connection db = DriverManager.getConnection("jdbc:postgresql://" + host + ":" + System.getenv("TLS_PORT") + "/millrace", properties);
             ResultSet rows = db.createStatement().executeQuery("SELECT 'in'")) {
            rows.next();
            outcome = rows.getString(1);
        } catch (SQLException error) {
            outcome = String.valueOf(error.getMessage()).replace("\\n", " ");
        }
        System.out.println("pgjdbc: " + name + " => " + outcome);
    }
    public static void main(String[] arguments) {
        String ca = System.getenv("TLS_CA");
        told("a known authority", "verify-full", ca, "localhost", false);
        told("bound, a known authority", "verify-full", ca, "localhost", true);
        told("another authority", "verify-full", System.getenv("TLS_OTHER"), "localhost", false);
        told("another name", "verify-full", ca, "127.0.0.1", false);
        told("without TLS", "disable", null, "localhost", false);
    }
}
'''


def clients(install):
    """Each client's name, and what makes its cases; None: it is not there."""
    os.makedirs(run.TOOLS, exist_ok=True)
    python, node, java = run.python(install), run.node(install), run.java(install)
    return [
        ("psql", psql),
        ("curl", curl),
        ("browser", browser),
        ("python", python and (lambda server: script(server, python, "clients.py", PYTHON))),
        ("node", node and (lambda server: script(server, node, "clients.js", NODE))),
        ("java", java and (lambda server: script(server, java, "Tls.java", JAVA))),
    ]


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--only", help="only clients whose names have this in them")
    arguments.add_argument("--no-install", action="store_true")
    arguments = arguments.parse_args()
    if not shutil.which("openssl"):
        run.skip("clients over TLS (openssl is needed)")
        return 0
    faults = 0
    with tempfile.TemporaryDirectory() as directory:
        server = Server(directory)
        try:
            if not server.is_ready():
                print("millrace does not start")
                return 1
            for client, cases in clients(not arguments.no_install):
                if arguments.only not in (None, "") and arguments.only not in client:
                    continue
                count = 0
                for name, is_right, told in (cases(server) if cases else ()):
                    count += 1
                    if not is_right:
                        faults += 1
                        print(f"{client}: {name}: {told.strip()}")
                if count:
                    print(f"{client}: {count} cases", flush=True)
                else:
                    run.skip(f"{client} over TLS (it is not there)")
        finally:
            server.stop()
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
