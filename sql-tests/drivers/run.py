#!/usr/bin/env python3
"""Runs drivers of PostgreSQL against PostgreSQL and against millrace, and compares what they saw.

    sql-tests/drivers/run.py [--only NAME] [--show] [--no-install]

Each script here prints one line for each case, `name => outcome`. It is run twice, once a server, and each case must have the same
outcome, except for those in `differences.txt`, which says why. A difference that is listed there and is none any more is a fault too.

Drivers are installed into target/drivers by pip, npm and mvn. What cannot be had is said and left out: exit code 0. The PostgreSQL is
the one of `pg_config`, Debian's folder or the path; DRIVERS_POSTGRES_BIN names another folder.
"""

import argparse
import fnmatch
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from servers import ROOT, Millrace, Postgres, quietly

TOOLS = os.path.join(ROOT, "target", "drivers")
SECONDS = 60

# Drivers in the order of their scripts' names: the script, and what it needs.
SCRIPTS = [
    ("asyncpg_all.py", "python"),
    ("psycopg_all.py", "python"),
    ("psycopg2_all.py", "python"),
    ("sqlalchemy_all.py", "python"),
    ("node_postgres.js", "node"),
    ("postgres_js.js", "node"),
    ("Jdbc.java", "java"),
]


def skip(why):
    print(f"skipped: {why}", flush=True)


def as_of(path):
    """Whether the tools were made from this list."""
    name = os.path.basename(path)
    try:
        with open(path) as wanted, open(os.path.join(TOOLS, name + ".installed")) as have:
            return wanted.read() == have.read()
    except OSError:
        return False


def installed(path):
    shutil.copyfile(path, os.path.join(TOOLS, os.path.basename(path) + ".installed"))


def python(install):
    """The command that runs a script of Python, or None."""
    listed = os.path.join(HERE, "requirements.txt")
    home = os.path.join(TOOLS, "python")
    if install and not as_of(listed):
        venv.create(home, clear=True, with_pip=True)
        if quietly([os.path.join(home, "bin", "pip"), "install", "-q", "-r", listed]):
            installed(listed)
    return [os.path.join(home, "bin", "python"), "-B"] if as_of(listed) else None


def node(install):
    listed = os.path.join(HERE, "package.json")
    if install and not as_of(listed):
        shutil.copyfile(listed, os.path.join(TOOLS, "package.json"))
        if quietly(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=TOOLS):
            installed(listed)
    return ["node"] if as_of(listed) else None


def java(install):
    listed = os.path.join(HERE, "pom.xml")
    jars = os.path.join(TOOLS, "jars")
    if install and not as_of(listed):
        shutil.copyfile(listed, os.path.join(TOOLS, "pom.xml"))
        if quietly(["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"], cwd=TOOLS):
            installed(listed)
    return ["java", "-cp", os.path.join(jars, "*")] if as_of(listed) and shutil.which("java") else None


def transcript(command, script, server, show):
    """What a script printed against a server."""
    environment = dict(os.environ, DRIVERS_HOST="127.0.0.1", DRIVERS_PORT=str(server.port), TZ="UTC",
                       NODE_PATH=os.path.join(TOOLS, "node_modules"), PYTHONWARNINGS="ignore", PYTHONHASHSEED="0")
    if show:
        environment["DRIVERS_SHOW"] = "1"
    try:
        done = subprocess.run([*command, os.path.join(HERE, script)], env=environment, timeout=SECONDS, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace")
        output, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        output, code = (late.stdout or b"").decode(errors="replace"), "none, it took too long"
    kept = os.path.join(TOOLS, f"{script}.{server.name}.txt")
    with open(kept, "w") as file:
        file.write(output)
    cases = {}
    for text in output.split("\n"):
        name, arrow, outcome = text.partition(" => ")
        if arrow:
            cases[name] = outcome
    cases["(exit code)"] = str(code)
    return cases, kept


def listed():
    """The differences that are known, by script and case; stars stand for anything."""
    known = []
    with open(os.path.join(HERE, "differences.txt")) as file:
        for text in file:
            text = text.strip("\n")
            if text and not text.startswith("#"):
                script, case = text.split(": ", 1)
                known.append((script, case))
    return known


def is_known(known, script, case, used):
    for entry in known:
        of, pattern = entry
        if fnmatch.fnmatchcase(script, of) and fnmatch.fnmatchcase(case, pattern):
            used.add(entry)
            return True
    return False


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--only", help="only scripts whose names have this in them")
    arguments.add_argument("--show", action="store_true", help="messages of errors in the transcripts")
    arguments.add_argument("--no-install", action="store_true")
    arguments = arguments.parse_args()
    os.makedirs(TOOLS, exist_ok=True)
    commands = {"python": python, "node": node, "java": java}
    commands = {name: make(not arguments.no_install) for name, make in commands.items()}
    scripts = [(script, commands[tool], tool) for script, tool in SCRIPTS if arguments.only in (None, "") or arguments.only in script]
    faults = 0
    known = listed()
    used = set()
    ran = set()
    with tempfile.TemporaryDirectory() as directory:
        servers = [Postgres(directory), Millrace(directory)]
        try:
            if not servers[0].start():
                skip("drivers of PostgreSQL (no server of PostgreSQL to compare with could be started)")
                return 0
            if not servers[1].start():
                print("millrace does not start")
                return 1
            for script, command, tool in scripts:
                if command is None:
                    skip(f"{script} ({tool} and its packages are not there)")
                    continue
                ran.add(script)
                began = time.monotonic()
                with ThreadPoolExecutor() as pool:
                    (wanted, _), (got, kept) = pool.map(lambda server: transcript(command, script, server, arguments.show), servers)
                names = list(wanted) + [name for name in got if name not in wanted]
                found = [name for name in names if wanted.get(name) != got.get(name)]
                new = [name for name in found if not is_known(known, script, name, used)]
                for name in new:
                    print(f"{script}: {name}\n    PostgreSQL: {wanted.get(name)}\n    millrace:   {got.get(name)}")
                faults += len(new)
                print(f"{script}: {len(wanted)} cases, {len(found) - len(new)} known differences, {len(new)} others, {time.monotonic() - began:.0f} s ({kept})", flush=True)
        finally:
            for server in servers:
                server.stop()
    for script, case in known:
        # Of a pattern for several scripts one is enough.
        if any(fnmatch.fnmatchcase(name, script) for name in ran) and (script, case) not in used and (len(ran) == len(SCRIPTS) or "*" not in script):
            print(f"differences.txt: {script}: {case} is no difference any more")
            faults += 1
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
