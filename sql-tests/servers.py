"""A PostgreSQL and a millrace of one's own on loopback, for scripts that compare them."""

import glob
import os
import shutil
import socket
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def quietly(command, **options):
    """Runs a command; False: it failed, or is not there."""
    try:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options).returncode == 0
    except OSError:
        return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port, database):
    """Whether a server lets somebody in: it may listen while it still starts."""
    parameters = b"user\0millrace\0database\0" + database.encode() + b"\0\0"
    with socket.socket() as client:
        client.settimeout(5)
        try:
            client.connect(("127.0.0.1", port))
            client.sendall((len(parameters) + 8).to_bytes(4, "big") + (196608).to_bytes(4, "big") + parameters)
            got = b""
            while not got.endswith(b"Z\0\0\0\5I"):
                block = client.recv(4096)
                if not block:
                    return False
                got += block
            return True
        except OSError:
            return False


def listens(port, child, database="millrace", seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end and child.poll() is None:
        if answers(port, database):
            return True
        time.sleep(0.05)
    return False


class Postgres:
    """A PostgreSQL of its own, as another user if this one is root (it refuses to be that)."""

    name = "postgres"

    def __init__(self, directory):
        places = [os.environ.get("DRIVERS_POSTGRES_BIN", ""), *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
        if found := shutil.which("initdb"):
            places.append(os.path.dirname(os.path.realpath(found)))
        self.bin = next((place for place in places if os.path.exists(os.path.join(place, "initdb"))), None)
        self.user = "postgres" if os.geteuid() == 0 else None
        self.directory = os.path.join(directory, "postgres")
        self.port = free_port()
        self.child = None

    def start(self):
        if self.bin is None:
            return False
        os.mkdir(self.directory)
        options = {"cwd": self.directory}
        if self.user:
            shutil.chown(self.directory, self.user)
            os.chmod(os.path.dirname(self.directory), 0o755)
            options["user"] = self.user
            options["group"] = self.user
        data = os.path.join(self.directory, "data")
        if not quietly([os.path.join(self.bin, "initdb"), "-A", "trust", "-U", "millrace", "-E", "UTF8", "--locale=C", "-D", data], **options):
            return False
        command = [os.path.join(self.bin, "postgres"), "-D", data, "-h", "127.0.0.1", "-p", str(self.port), "-k", self.directory,
                   "-c", "fsync=off", "-c", "timezone=UTC", "-c", "max_prepared_transactions=0"]
        self.child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
        create = [os.path.join(self.bin, "createdb"), "-h", "127.0.0.1", "-p", str(self.port), "-U", "millrace", "-T", "template0", "millrace"]
        return listens(self.port, self.child, "postgres") and quietly(create)

    def stop(self):
        if self.child:
            self.child.terminate()
            self.child.wait()


class Millrace:
    name = "millrace"

    def __init__(self, directory):
        self.directory = os.path.join(directory, "millrace")
        self.port = free_port()
        self.child = None

    def start(self):
        binary = os.environ.get("DRIVERS_MILLRACE", os.path.join(ROOT, "target", "debug", "millrace"))
        command = [binary, "serve", "--data", self.directory, "--pg", f"127.0.0.1:{self.port}", "--http", f"127.0.0.1:{free_port()}"]
        with open(self.directory + ".log", "w") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=log)
        return listens(self.port, self.child)

    def stop(self):
        if self.child:
            self.child.terminate()
            self.child.wait()
