"""A server of millrace for one turn."""

import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from .machine import CORES


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A fresh server over an empty directory, with default settings but for its cores: durable writes."""

    def __init__(self, binary, cache):
        self.directory = tempfile.mkdtemp(prefix="millrace-", dir=cache)
        self.log = open(self.directory + ".log", "w")
        self.pg, self.http = free_port(), free_port()
        command = [binary, "serve", "--data", self.directory, "--pg", f"127.0.0.1:{self.pg}", "--http", f"127.0.0.1:{self.http}"]
        command += ["--cores", str(CORES)]
        surroundings = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, env=surroundings)
        deadline = time.monotonic() + 30
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"millrace did not start: see {self.log.name}")
            time.sleep(0.02)

    def is_ready(self):
        try:
            asked = http.client.HTTPConnection("127.0.0.1", self.http, timeout=5)
            asked.request("GET", "/ready")
            return asked.getresponse().status == 200
        except OSError:
            return False

    def dsn(self):
        return f"host=127.0.0.1 port={self.pg} user=millrace dbname=millrace"

    def connect(self):
        import psycopg

        connection = psycopg.connect(self.dsn(), autocommit=True)
        connection.execute("SET client_min_messages = error")
        return connection

    @property
    def pid(self):
        return self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)
        os.remove(self.log.name)
