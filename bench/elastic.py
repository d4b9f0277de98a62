#!/usr/bin/env python3
"""How long an elastic job pauses when a rank is killed, or with --grow when one joins.

    bench/elastic.py [--jobs 5] [--ranks 6] [--zero 0] [--pipeline 0] [--namespaces] [--grow]

Every job starts with --ranks ranks; one rank after the other is killed (kill -9, chosen by a fixed seed) until one is left, over shm and over tcp.
The pause runs from the kill to the end of the first step that the ranks left finish together. With --pipeline N the model is cut into N stages (ranks
beyond them are spares), with --namespaces the ranks are on two machines (network namespaces: needs root), over tcp. With --grow a job of two ranks grows to --ranks, by `yoke run
--join`; the pause runs from the last step without a new rank to the end of the first one with it, less a usual step.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from two_machines import Machines, make_secret, why_not  # noqa: E402

YOKE = os.environ.get("YOKE_BIN", str(ROOT / "build/yoke"))


def ranks_of(launcher):
    """Processes of the ranks, by the number the launcher gave them."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1])
            variables = open(f"/proc/{entry}/environ").read().split("\0") if parent == launcher else []
        except (OSError, IndexError):
            continue
        for variable in variables:
            if variable.startswith("YOKE_RANK="):
                found[int(variable[10:])] = int(entry)
    return found


def wait_for(log, pattern, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if re.search(pattern, "".join(log)):
            return
        time.sleep(0.01)
    raise SystemExit(f"no '{pattern}' within {seconds} s in\n" + "".join(log))


def start(command, log):
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    threading.Thread(target=lambda: [log.append(line) for line in process.stderr], daemon=True).start()
    return process


def launchers(folder, ranks, machines, words, log):
    """One, or one on each of two machines."""
    train = [YOKE, "train", *words]
    if machines is None:
        return [start([*train, "--nproc", ranks, "--elastic"], log)]
    key = make_secret(pathlib.Path(folder) / "key")
    return [start([*machines.inside(node), YOKE, "run", "--elastic", "--nnodes", 2, "--node-rank", node, "--nproc", ranks // 2, "--rdzv-endpoint",
                   f"{machines.head}:29571", "--secret-file", key, *train], log) for node in range(2)]


def job(ranks, backend, config, draw, words, machines=None):
    """Pauses in seconds, one for every kill, each with the number of ranks before it."""
    with tempfile.TemporaryDirectory() as folder:
        log = []
        jobs = launchers(folder, ranks, machines, [config, "--parallel.backend", backend, "--out.dir", folder + "/run", "--steps", 10**8, "--train.threads", 1,
                                                   "--train.evaluate", "false", "--out.log_every", 50, "--out.report", "false", *words], log)
        records = pathlib.Path(folder) / "run/metrics.jsonl"
        end = time.monotonic() + 120
        while not (records.exists() and records.stat().st_size > 0):
            if time.monotonic() > end or any(one.poll() is not None for one in jobs):
                raise SystemExit("the job did not start:\n" + "".join(log))
            time.sleep(0.02)
        kills = []
        alive = {rank: pid for one in jobs for rank, pid in ranks_of(one.pid).items()}
        for epoch in range(1, ranks):
            victim = draw.choice(sorted(alive))
            os.kill(alive.pop(victim), signal.SIGKILL)
            kills.append(time.time())
            wait_for(log, rf"epoch {epoch}: step \d+ finished", 60)
            time.sleep(0.2 + 0.3 * draw.random())  # at another point of a step each time
        for one in jobs:
            one.send_signal(signal.SIGTERM)
        for one in jobs:
            one.wait(60)
        elastic = json.loads((pathlib.Path(folder) / "run/summary.json").read_text())["elastic"]
    assert elastic["losses"] == ranks - 1 and elastic["repeated"] <= ranks - 1, elastic
    changes = [change for change in elastic["changes"] if change["at"] > 0]
    return [(ranks - i, change["at"] - kills[i]) for i, change in enumerate(changes)]


def growing(ranks, config, zero):
    """Pauses in seconds, one for every rank that joins, each with the number of ranks before it; and the seconds of a usual step."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        key = pathlib.Path(folder) / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o600)

        def start(*flags):
            command = [YOKE, "run", *flags, "--rdzv-endpoint", f"127.0.0.1:{port}", "--secret-file", key, YOKE, "train", config, "--out.dir", folder + "/run", "--steps", 10**8,
                       "--train.threads", 1, "--train.evaluate", "false", "--out.log_every", 1, "--out.report", "false", "--parallel.zero", zero]
            process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            log = []
            threading.Thread(target=lambda: [log.append(line) for line in process.stderr], daemon=True).start()
            return process, log

        first, log = start("--elastic", "--nproc", 2)
        launchers = [first]
        records = pathlib.Path(folder) / "run/metrics.jsonl"
        end = time.monotonic() + 120
        while not (records.exists() and records.stat().st_size > 20000):
            if time.monotonic() > end or first.poll() is not None:
                raise SystemExit("the job did not start:\n" + "".join(log))
            time.sleep(0.02)
        for more in range(2, ranks):
            launchers.append(start("--join")[0])
            wait_for(log, rf"epoch \d+: {more + 1} ranks continue[^|]*step \d+ finished", 120)
            time.sleep(1)
        for launcher in launchers:
            launcher.send_signal(signal.SIGTERM)
        for launcher in launchers:
            launcher.wait(60)
        summary = json.loads((pathlib.Path(folder) / "run/summary.json").read_text())
    assert summary["elastic"]["joins"] == ranks - 2 and summary["elastic"]["repeated"] == 0, summary["elastic"]
    usual = summary["step_seconds"]["median"]
    return [(i + 2, change["pause"] - usual) for i, change in enumerate(summary["elastic"]["changes"])], usual


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5, help="per backend")
    parser.add_argument("--ranks", type=int, default=6)
    parser.add_argument("--config", default=str(ROOT / "configs/mlp_tiny.toml"))
    parser.add_argument("--zero", type=int, default=0, choices=range(4))
    parser.add_argument("--pipeline", type=int, default=0, metavar="STAGES")
    parser.add_argument("--namespaces", action="store_true", help="two machines, each with half of the ranks")
    parser.add_argument("--grow", action="store_true")
    arguments = parser.parse_args()
    if arguments.namespaces and (arguments.grow or arguments.ranks % 2 or why_not()):
        parser.error(why_not() or "--namespaces wants an even number of --ranks, and no --grow")
    if arguments.grow:
        rows, steps = [], []
        for _ in range(arguments.jobs):
            pauses, usual = growing(arguments.ranks, arguments.config, arguments.zero)
            rows += pauses
            steps.append(usual)
        print("          joins  median s  p95 s  worst s")
        show("all", rows)
        usual, pause = statistics.median(steps), statistics.median(seconds for _, seconds in rows)
        print(f"a step takes {usual * 1e3:.1f} ms; the median pause is {pause * 1e3:.0f} ms, {pause / usual:.2f} steps")
        return
    draw = random.Random(1)
    words = ["--parallel.zero", arguments.zero] if arguments.zero else []
    if arguments.pipeline:
        words += ["--parallel.pipeline", arguments.pipeline, "--parallel.data", 1, "--model.sizes", "[32, 48, 48, 48, 48, 10]", "--checkpoint.every_steps", 0]
    pauses = []
    print("backend  kills  median s  p95 s  worst s")
    for backend in ("tcp",) if arguments.namespaces else ("shm", "tcp"):
        own = []
        for _ in range(arguments.jobs):
            with Machines() if arguments.namespaces else contextlib.nullcontext() as machines:
                own += job(arguments.ranks, backend, arguments.config, draw, words, machines)
        pauses += own
        show(backend, own)
    show("all", pauses)
    for ranks in sorted({row[0] for row in pauses}):
        show(f"{ranks} ranks", [row for row in pauses if row[0] == ranks])
    distribution([seconds for _, seconds in pauses])


def distribution(times):
    """How many pauses were how long."""
    edges = [0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5, float("inf")]
    print("pause     kills")
    for low, high in zip([0, *edges], edges):
        count = sum(low <= one < high for one in times)
        if count:
            print(f"< {high:<6g}s {count:5}  {'#' * round(40 * count / len(times))}")


def show(name, rows):
    times = sorted(seconds for _, seconds in rows)
    p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
    print(f"{name:8} {len(times):5}  {statistics.median(times):8.2f}  {p95:5.2f}  {times[-1]:7.2f}", flush=True)


if __name__ == "__main__":
    main()
