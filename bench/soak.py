#!/usr/bin/env python3
"""An elastic job that is disturbed all the time, and what it costs.

    bench/soak.py [--minutes 30] [--every 15] [--zero 0] [--points] [--seed 1] [--json]

Two machines (network namespaces: needs root; otherwise two launchers on this one, and no partitions) with two ranks each train one model. Every
--every seconds a rank is killed, a rank is stopped (SIGSTOP), or the link between the machines is cut for three seconds; lost ranks are restarted into
the job, and so is the second machine, which ends when it was cut off. With --points faults also come from inside, at random hits of fault points
(YOKE_FAULT). Afterwards the same number of steps is trained without faults. In one of ten cases the next token is drawn by chance, and there are too many
samples to learn them by heart: the loss stays above 0.7 however long the run. Held to:

    goodput   the time in which steps are finished, of all time: at least 80 %
    loss      the mean of the last 200 steps: that of the undisturbed run, within 2 %
    memory    of launchers and ranks: the largest of the last third is at most 10 % above that of the first third
    nothing   left behind: no process, no shared memory
"""
import argparse
import json
import os
import pathlib
import random
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
from two_machines import Machines, make_secret, sh, why_not  # noqa: E402

YOKE = os.environ.get("YOKE_BIN", str(ROOT / "build/yoke"))
CUT = 3  # seconds
PER_MACHINE = 2


# A hit of each in a step or a heartbeat, on every rank; copies and rebuilding only with --zero.
POINTS = ["comm.collective.begin:kill", "comm.collective.begin:stop", "frame.send:drop", "session.heartbeat:kill", "elastic.copy:kill", "elastic.rebuild:kill"]


def point_rules(every, seed):
    """About one fault in `every` seconds from all points together."""
    chance = every and 1 / (every * 2 * PER_MACHINE * 100)  # about 100 hits in a second
    return "; ".join(f"at={point.split(':')[0]},p={0.01 if 'rebuild' in point else chance:.7f},seed={seed + i}:{point.split(':')[1]}" for i, point in enumerate(POINTS))


class Node:
    """A launcher and the processes below it."""

    def __init__(self, command, faults=""):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")} | ({"YOKE_FAULT": faults} if faults else {})
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=clean, cwd=ROOT)
        self.log = []
        self.reader = threading.Thread(target=lambda: [self.log.append(line) for line in self.process.stderr], daemon=True)
        self.reader.start()

    def ranks(self):
        return [pid for pid, variables in below(self.process.pid) if any(v.startswith("YOKE_RANK=") for v in variables)]


def below(root):
    """(pid, environment) of the processes that descend from `root`."""
    parents, found = {}, []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            parents[int(entry)] = int(open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
    for pid in parents:
        above = parents[pid]
        while above in parents and above != root:
            above = parents[above]
        if above != root:
            continue
        try:
            found.append((pid, open(f"/proc/{pid}/environ").read().split("\0")))
        except OSError:
            continue
    return found


def resident(pid):
    try:
        return int(open(f"/proc/{pid}/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


class Watch(threading.Thread):
    """When each step was finished, and how much memory the job takes, while it runs."""

    def __init__(self, records, nodes):
        super().__init__(daemon=True)
        self.records, self.nodes, self.ended = records, nodes, threading.Event()
        self.steps, self.memory, self.pids = [], [], set()

    def run(self):
        ticks = 0
        while not self.ended.wait(0.02):
            step = last_step(self.records)
            if step is not None and (not self.steps or step > max(s for _, s in self.steps[-1:])):
                self.steps.append((time.monotonic(), step))
            if ticks % 250 == 0:
                ranks = [pid for node in self.nodes for pid in node.ranks()]
                self.pids.update(ranks)
                launchers = [resident(node.process.pid) for node in self.nodes]
                self.memory.append((time.monotonic(), max(launchers), max(map(resident, ranks), default=0)))
            ticks += 1

    def goodput(self, begin, end):
        """Time without the gaps in which no step was finished for ten times longer than usual."""
        times = [begin] + [at for at, _ in self.steps if begin <= at <= end] + [end]
        gaps = [b - a for a, b in zip(times, times[1:])]
        usual = statistics.median(gaps)
        lost = sum(gap - usual for gap in gaps if gap > max(10 * usual, 0.1))
        return 1 - lost / (end - begin), usual


def last_step(records):
    try:
        with open(records, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - 2048))
            lines = [line for line in file.read().split(b"\n") if line.endswith(b"}") and line.startswith(b"{")]
        return json.loads(lines[-1])["step"] if lines else None
    except (OSError, ValueError):
        return None


def train(folder, zero, steps):
    recipe = folder.parent / "soak.toml"
    recipe.write_text(RECIPE)
    return [YOKE, "train", recipe, "--out.dir", folder, "--steps", steps, "--train.threads", 1, "--train.evaluate", "false",
            "--out.log_every", 1, "--out.report", "false", "--parallel.zero", zero, "--parallel.backend", "tcp", "--slowdown.law", "exp:20ms",
            "--checkpoint.every_steps", 200 if zero else 0]


RECIPE = """[model]
name = "gpt2"
layers = 1
heads = 2
width = 32
vocabulary = 64
positions = 16

[data]
name = "synthetic"
samples = 2000000          # of 16 tokens: far more than the model can hold
batch_size = 8

[train]
optimizer = "adamw"
lr = 0.003
seed = 1
"""


def final_loss(folder, count=200):
    """Of one batch it would be chance."""
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return statistics.mean(record["loss"] for record in records[-count:])


def start_nodes(machines, folder, key, zero, rules=""):
    """Functions that start the launcher of each machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    head = machines.head if machines else "127.0.0.1"
    def start(number):
        prefix = machines.inside(number) if machines else []
        return Node([*prefix, YOKE, "run", "--elastic", "--nnodes", 2, "--nproc", PER_MACHINE, "--node-rank", number, "--max-restarts", 100000, "--rdzv-endpoint",
                           f"{head}:{port}", "--secret-file", key, *train(folder, zero, 10**8)], rules)

    return start


class Faults:
    def __init__(self, nodes, machines, draw):
        self.nodes, self.machines, self.draw, self.counts = nodes, machines, draw, {}

    def one(self):
        kind = self.draw.choice(["kill", "kill", "stall", "partition"] if self.machines else ["kill", "kill", "stall"])
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind == "partition":
            return self.cut()
        ranks = sorted(pid for node in self.nodes for pid in node.ranks())
        if len(ranks) > 1:  # the last one has the only state
            os.kill(self.draw.choice(ranks), signal.SIGKILL if kind == "kill" else signal.SIGSTOP)

    def cut(self):
        link = [*self.machines.inside(1), "ip", "link", "set", "eth0"]
        sh(*link, "down")
        threading.Event().wait(CUT)
        sh(*link, "up")


def disturbed(arguments, folder, machines):
    draw = random.Random(arguments.seed)
    key = make_secret(folder / "key")
    before = set(os.listdir("/dev/shm"))
    rules = point_rules(arguments.every, arguments.seed) if arguments.points else ""
    start = start_nodes(machines, folder / "run", key, arguments.zero, rules)
    nodes = [start(0), start(1)]
    ended = []
    watch = Watch(folder / "run/metrics.jsonl", nodes)
    watch.start()
    try:
        limit = time.monotonic() + 120
        while not watch.steps or watch.steps[-1][1] < 10:
            if time.monotonic() > limit or any(node.process.poll() is not None for node in nodes):
                raise SystemExit("the job did not start:\n" + "".join(nodes[0].log + nodes[1].log))
            time.sleep(0.1)
        faults = Faults(nodes, machines, draw)
        begin = time.monotonic()
        end = begin + 60 * arguments.minutes
        next_fault = begin + arguments.every
        while time.monotonic() < end:
            if nodes[0].process.poll() is not None:
                raise SystemExit("the job ended:\n" + "".join(nodes[0].log[-60:]))
            if nodes[1].process.poll() is not None:
                ended.append(nodes[1])
                nodes[1] = start(1)
            if time.monotonic() >= next_fault and next_fault < end - arguments.every:
                next_fault += arguments.every
                faults.one()
            time.sleep(0.05)
        for node in nodes:
            node.process.send_signal(signal.SIGTERM)
        for node in nodes:
            node.process.wait(60)
    finally:
        for node in nodes:
            if node.process.poll() is None:
                node.process.kill()
        watch.ended.set()
        watch.join(10)
    goodput, usual = watch.goodput(begin, end)
    summary = json.loads((folder / "run/summary.json").read_text())
    limit = time.monotonic() + 10
    while any(alive(pid) for pid in watch.pids) and time.monotonic() < limit:
        time.sleep(0.1)
    orphans = [pid for pid in watch.pids if alive(pid)]
    left = sorted(name for name in set(os.listdir("/dev/shm")) - before if name.startswith("yoke"))
    if arguments.points:
        faults.counts["point"] = sum("YOKE_FAULT: " in line for node in [*nodes, *ended] for line in node.log)
    return {"seconds": round(end - begin), "faults": faults.counts, "goodput": goodput, "step_seconds": usual, "steps": summary["steps"],
            "loss": final_loss(folder / "run"), "epochs": summary["elastic"]["epochs"], "losses": summary["elastic"]["losses"], "joins": summary["elastic"]["joins"],
            "repeated": summary["elastic"]["repeated"], "machine_returned": len(ended), "orphans": orphans, "shared_memory_left": left, **growth(watch.memory)}


def growth(memory):
    third = max(1, len(memory) // 3)
    first, last = memory[1:third + 1] or memory[:1], memory[-third:]
    return {f"{name}_mb": [round(max(row[i] for row in part) / 1e6, 1) for part in (first, last)] for i, name in ((1, "launcher"), (2, "rank"))}


def undisturbed(arguments, folder, steps):
    words = train(folder / "calm", arguments.zero, steps)
    words[words.index("--slowdown.law") + 1] = "none"
    clean = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")}
    subprocess.run(list(map(str, [*words, "--nproc", 2 * PER_MACHINE, "-q"])), check=True, env=clean, cwd=ROOT, stdout=subprocess.DEVNULL)
    return final_loss(folder / "calm")


def verdict(result):
    problems = []
    if result["goodput"] < 0.8:
        problems.append(f"goodput is {result['goodput']:.1%}")
    if not 0.1 < result["calm_loss"] or abs(result["loss"] - result["calm_loss"]) > 0.02 * result["calm_loss"]:
        problems.append(f"the loss is {result['loss']:.4g}, without faults {result['calm_loss']:.4g}")
    for name in ("launcher_mb", "rank_mb"):
        if result[name][1] > 1.1 * result[name][0]:
            problems.append(f"{name} grew from {result[name][0]} to {result[name][1]}")
    if result["orphans"] or result["shared_memory_left"]:
        problems.append(f"left behind: {result['orphans']} {result['shared_memory_left']}")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=15, help="seconds between two faults")
    parser.add_argument("--zero", type=int, default=0, choices=range(4))
    parser.add_argument("--points", action="store_true", help="faults from inside, too: YOKE_FAULT")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reason = why_not()
    if reason:
        print(f"no partitions: {reason}", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if reason:
            result = disturbed(arguments, folder, None)
        else:
            with Machines() as machines:
                result = disturbed(arguments, folder, machines)
        result["calm_loss"] = undisturbed(arguments, folder, result["steps"])
    result["problems"] = verdict(result)
    if arguments.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:20} {value:.4g}" if isinstance(value, float) else f"{key:20} {value}")
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
