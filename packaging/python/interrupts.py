"""Tries that a program with a server leaves neither its process nor its directory behind, however it ends: interrupts.py PYTHON, an
interpreter that has the wheel. Run by scripts/release.
"""

import os
import signal
import subprocess
import sys
import tempfile

WITHOUT_WITH = """
import signal, millrace
server = millrace.Server(log=open(os.devnull, "w")).start()
print(server._end.peek()[1].__self__.process.pid, flush=True)
"""
PROGRAMS = {
    # Each prints the server's process id, and waits to be interrupted.
    "outside of with": WITHOUT_WITH + "signal.pause()",
    "in with": """
import signal, millrace
with millrace.Server(log=open(os.devnull, "w")) as server:
    print(server._end.peek()[1].__self__.process.pid, flush=True)
    signal.pause()
""",
    "an exception": WITHOUT_WITH + "signal.signal(signal.SIGINT, lambda *_: 1 / 0)\nsignal.pause()",
    # The line that says that it is ready is read, and not understood: start waits for another.
    "while it starts": """
import millrace
class Never:
    def search(self, line):
        print(subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True).stdout.split()[0], flush=True)
        return None
millrace._READY = Never()
millrace.Server(log=open(os.devnull, "w")).start()
""",
}


def is_there(process):
    try:
        os.kill(process, 0)
        return True
    except ProcessLookupError:
        return False


for name, text in PROGRAMS.items():
    with tempfile.TemporaryDirectory() as folder:
        program = subprocess.Popen(
            [sys.argv[1], "-c", "import os, subprocess\n" + text],
            env=dict(os.environ, TMPDIR=folder),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        server = int(program.stdout.readline())
        assert is_there(server), name
        program.send_signal(signal.SIGINT)
        program.wait(timeout=60)
        assert program.returncode != 0, name
        assert not is_there(server), f"{name}: the process is still there"
        assert os.listdir(folder) == [], f"{name}: {os.listdir(folder)} is left behind"
print(f"{len(PROGRAMS)} programs ended and left nothing behind")
