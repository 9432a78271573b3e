"""What a run was made on, and how much of it others took meanwhile."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[3]
TICKS = os.sysconf("SC_CLK_TCK")

# What each side gets, whatever the machine has: the input of Flink is in so many files.
CORES = 2


def load():
    return os.getloadavg()[0]


def about():
    """The machine, and the commit that the tree is at."""
    names = [line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    memory = int(next(line for line in open("/proc/meminfo") if line.startswith("MemTotal")).split()[1])
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    changed = subprocess.run(["git", "status", "--porcelain", "--untracked-files=no"], cwd=ROOT, capture_output=True, text=True)
    return {
        "processor": f"{names[0] if names else 'unknown'} ({os.cpu_count()} cores)",
        "memory": f"{memory / 1024 / 1024:.1f} GiB",
        "kernel": f"{os.uname().sysname} {os.uname().release}",
        "commit": commit + (" with changes that were not committed" if changed.stdout.strip() else ""),
        "load before": load(),
    }


def busy():
    """Processor seconds that the machine has spent on anything."""
    fields = [int(field) for field in open("/proc/stat").readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / TICKS


def spent(pid):
    """Processor seconds that a process has spent."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak(pid):
    """The most memory that a process had, in MB."""
    line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM"))
    return int(line.split()[1]) // 1024
