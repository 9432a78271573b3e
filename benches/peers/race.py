#!/usr/bin/env python3
"""The race: millrace and its peers on the same input, by turns, on one machine, with their answers checked.

    race.py fetch                   what the sides need, from pip and crates.io, and the input; once
    race.py run [SUITE ...]         run suites (replay, batch, ceiling; all if none is named)
    race.py report DIR              write DIR/report.md and its plots again from DIR/results.json

README.md beside this file says what each suite does, and what each side does not do.
"""

import argparse
import json
import os
import pathlib
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from sides import batch, ceiling, fetch, machine, replay, report  # noqa: E402

SUITES = {"replay": replay, "batch": batch, "ceiling": ceiling}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=pathlib.Path(os.environ.get("MILLRACE_PEERS", HERE.parents[1] / "target" / "peers")),
        help="where the peers and the input are kept (8 GB; default: target/peers, or MILLRACE_PEERS)",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch the peers, build what is built here, write the input")
    run = commands.add_parser("run", help="run suites and keep their results")
    run.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    run.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these queries only, such as ysb q5")
    run.add_argument("--rounds", type=int, default=3, help="turns of each side (default 3)")
    run.add_argument("--out", type=pathlib.Path, help="where results are written (default: benches/results/DATE-race)")
    run.add_argument(
        "--binary",
        type=pathlib.Path,
        default=HERE.parents[1] / "target" / "release" / "millrace",
        help="millrace (default: target/release/millrace)",
    )
    run.add_argument(
        "--pg",
        action="append",
        default=[],
        metavar="NAME=DSN",
        help="one more side of the suite batch: any server that speaks PostgreSQL's protocol, with TPC-H's tables loaded",
    )
    run.add_argument(
        "--command",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        dest="commands",
        help="one more side of the suite replay: a command that is given a query's name and the folder of the input, and prints a line of JSON",
    )
    again = commands.add_parser("report", help="write the report of kept results again")
    again.add_argument("directory", type=pathlib.Path)
    said = parser.parse_args()
    unknown = set(getattr(said, "suites", [])) - set(SUITES)
    if unknown:
        parser.error(f"there is no suite {', '.join(sorted(unknown))}: there are {', '.join(SUITES)}")
    return said


def main():
    said = arguments()
    if said.command == "fetch":
        fetch.all_of(said.cache)
        return
    if said.command == "report":
        report.write(said.directory)
        return
    fetch.enter(said.cache)
    out = said.out or HERE.parents[0] / "results" / f"{time.strftime('%Y-%m-%d')}-race"
    results = {"machine": machine.about(), "suites": {}}
    for name in said.suites or SUITES:
        results["suites"][name] = SUITES[name].run(said)
        results["machine"]["load after"] = machine.load()
        out.mkdir(parents=True, exist_ok=True)
        (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
        report.write(out)
    print(f"results: {out}")


if __name__ == "__main__":
    main()
