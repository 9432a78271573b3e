"""millrace, a declarative SQL streaming database, with its binary.

    with millrace.Server() as server:
        connection = psycopg.connect(server.url)

`millrace` itself is a command where the package is installed.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading

__all__ = ["Server", "binary"]

_READY = re.compile(r"is ready: psql -h (\S+) -p (\d+) .* (https?://\S+)/ ")


def binary():
    """The path of the binary.

    Raises FileNotFoundError if it is not where pip puts it, nor in PATH.
    """
    places = [sysconfig.get_path("scripts"), os.path.join(os.path.dirname(sys.executable))]
    places.append(sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")))
    # `pip install --target`.
    places.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bin"))
    found = shutil.which("millrace", path=os.pathsep.join(places)) or shutil.which("millrace")
    if found is None:
        raise FileNotFoundError("there is no millrace in " + ", ".join(places) + " or in PATH; install the package again")
    return found


class Server:
    """A server of this program's own: it ends with it, however that ends.

    data: its directory, which stays; None is one that is removed at the end.
    options: keys of the configuration, such as memory_limit="600MB"; pg and http are addresses, on free ports by default.
    log: a file that the server's log goes to; None is this program's stderr.
    timeout: seconds in which it has to be ready; a large directory takes longer.
    """

    def __init__(self, data=None, *, log=None, timeout=60, **options):
        self.data, self._log, self._timeout = data, log, timeout
        self._options = {"pg": "127.0.0.1:0", "http": "127.0.0.1:0", **options}
        self._process = self._temporary = None

    def start(self):
        """Starts it, and returns when it answers. Raises RuntimeError if it does not start, with what it said."""
        if self._process is not None:
            raise RuntimeError("the server runs already")
        data = self.data
        if data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="millrace-")
            data = self._temporary.name
        environment = dict(os.environ, MILLRACE_DATA=os.fspath(data))
        environment.update({"MILLRACE_" + key.upper(): str(value) for key, value in self._options.items()})
        self._process = subprocess.Popen(
            [binary(), "serve", "--stop-at-eof"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        limit = threading.Timer(self._timeout, self._process.kill)
        limit.start()
        said = []
        try:
            for line in self._process.stdout:
                said.append(line)
                ready = _READY.search(line)
                if ready:
                    self.host, self.port, self.http = ready[1], int(ready[2]), ready[3]
                    break
        finally:
            limit.cancel()
        if not said or not ready:
            status = self._process.wait()
            self.stop()
            raise RuntimeError(f"the server did not start (status {status}): {''.join(said) or 'its log says why'}")
        # Nobody reads what else it says, and it is not to wait for that.
        threading.Thread(target=self._process.stdout.read, daemon=True).start()
        return self

    def stop(self):
        """Stops it in order: what was acknowledged is on the disk."""
        process, self._process = self._process, None
        if process is not None:
            process.stdin.close()
            process.wait()
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()

    @property
    def url(self):
        """For drivers of PostgreSQL: postgresql://millrace@127.0.0.1:40123/millrace. A password is not in it."""
        return f"postgresql://millrace@{self.host}:{self.port}/millrace"

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
