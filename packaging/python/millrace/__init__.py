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
import weakref

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


class _Run:
    """A process and the directory that goes with it, and how both end."""

    def __init__(self):
        self.owner = os.getpid()
        self.process = self.temporary = None

    def end(self):
        # A copy of this program that a fork has made has no server.
        if os.getpid() != self.owner:
            return
        try:
            if self.process is not None:
                try:
                    self.process.stdin.close()
                except OSError:
                    pass
                self.process.wait()
        finally:
            # Somebody does not want to wait. What was acknowledged is on the disk.
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if self.temporary is not None:
                self.temporary.cleanup()


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
        self._end = None

    def start(self):
        """Starts it, and returns when it answers. Raises RuntimeError if it does not start, with what it said."""
        if self._end is not None and self._end.alive:
            raise RuntimeError("the server runs already")
        run = _Run()
        # Also when the program ends without a call of stop, or forgets this object.
        self._end = weakref.finalize(self, run.end)
        try:
            self._start(run)
        except BaseException:
            # ctrl-C is one: nothing is left behind.
            self.stop()
            raise
        return self

    def _start(self, run):
        data = self.data
        if data is None:
            run.temporary = tempfile.TemporaryDirectory(prefix="millrace-")
            data = run.temporary.name
        environment = dict(os.environ, MILLRACE_DATA=os.fspath(data))
        environment.update({"MILLRACE_" + key.upper(): str(value) for key, value in self._options.items()})
        process = run.process = subprocess.Popen(
            [binary(), "serve", "--stop-at-eof"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            # A ctrl-C in the terminal is for the program, which may still have something to ask.
            start_new_session=True,
        )
        limit = threading.Timer(self._timeout, process.kill)
        limit.daemon = True
        limit.start()
        said, ready = [], None
        try:
            for line in process.stdout:
                said.append(line)
                ready = _READY.search(line)
                if ready:
                    self.host, self.port, self.http = ready[1], int(ready[2]), ready[3]
                    break
        finally:
            limit.cancel()
        if not ready:
            status = process.wait()
            raise RuntimeError(f"the server did not start (status {status}): {''.join(said) or 'its log says why'}")
        # Nobody reads what else it says, and it is not to wait for that.
        threading.Thread(target=process.stdout.read, daemon=True).start()

    def stop(self):
        """Stops it in order: what was acknowledged is on the disk."""
        if self._end is not None:
            self._end()

    @property
    def url(self):
        """For drivers of PostgreSQL: postgresql://millrace@127.0.0.1:40123/millrace. A password is not in it."""
        return f"postgresql://millrace@{self.host}:{self.port}/millrace"

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()
