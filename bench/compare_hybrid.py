#!/usr/bin/env python3
"""Summation by workers and spare machines against the ring all-reduce of the workers, over equal links.

Network namespaces around a switch, one rank in each, every link shaped in both directions. Ring and summation take turns, so that
other load affects both. Needs root, ip and tc.

    sudo bench/compare_hybrid.py [--rate 100mbit] [--queue 1mb] [--bytes 16M] [--rounds 3] [--layouts 4:0,4:2,4:4]
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = ROOT / "build/yoke"
sys.path.insert(0, str(ROOT / "tests"))
from two_machines import make_secret, sh, why_not


class Switch:
    """Namespaces with the addresses 10.84.0.1, …, each with a link to one bridge. A context manager: they are gone at its end."""

    def __init__(self, machines, rate, queue):
        self.rate, self.queue = rate, queue
        self.hub = f"yoke-{os.getpid()}-hub"
        self.names = [f"yoke-{os.getpid()}-{index}" for index in range(machines)]

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        sh("ip", "netns", "add", self.hub)
        sh("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
        sh("ip", "-n", self.hub, "link", "set", "bridge", "up")
        for index, name in enumerate(self.names):
            port = f"port{index}"
            sh("ip", "netns", "add", name)
            sh("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", self.hub)
            sh("ip", "-n", self.hub, "link", "set", port, "master", "bridge", "up")
            sh("ip", "-n", name, "addr", "add", f"10.84.0.{index + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                sh("ip", "-n", name, "link", "set", device, "up")
            # What the machine sends, and what the switch sends to it.
            self._shape(name, "eth0")
            self._shape(self.hub, port)

    def _shape(self, name, device):
        sh("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", self.rate, "burst", "64kb",
           "limit", self.queue)

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            sh("ip", "netns", "del", name, check=False)

    def run(self, secret, machines, *words):
        """The JSON that rank 0 of a job on the first `machines` machines prints."""
        ranks = []
        for node in range(machines):
            command = ["ip", "netns", "exec", self.names[node], YOKE, "run", "--nnodes", machines, "--nproc-per-node", 1, "--node-rank",
                       node, "--rdzv-endpoint", "10.84.0.1:29571", "--rdzv-id", "hybrid", "--secret-file", secret, YOKE, *words, "--json"]
            ranks.append(subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        answers = [rank.communicate(timeout=600) for rank in ranks]
        for rank, (_, error) in zip(ranks, answers):
            if rank.returncode != 0:
                sys.exit(error)
        text = "\n".join(re.sub(r"^\[rank 0[^]]*\] ", "", line) for line in answers[0][0].splitlines())
        return json.loads(text)["results"][0]


def predicted_gain(workers, spares):
    """The closed form of docs/design/summation.md."""
    return (workers * workers + spares * workers - 2 * spares) / workers ** 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--queue", default="1mb", help="what the sending end of a link holds before it drops packets")
    parser.add_argument("--bytes", default="16M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layouts", default="4:0,4:2,4:4", help="workers:spares, …")
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    layouts = [tuple(map(int, layout.split(":"))) for layout in arguments.layouts.split(",")]
    bench = ["bench", "collectives", "--backend", "tcp", "--bytes", arguments.bytes, "--iterations", 3]
    with tempfile.TemporaryDirectory() as folder, Switch(max(map(sum, layouts)), arguments.rate, arguments.queue) as switch:
        secret = make_secret(pathlib.Path(folder) / "secret")
        print("| workers | spares | ring | summation | gain | by the formula |")
        print("| --- | --- | --- | --- | --- | --- |")
        for workers, spares in layouts:
            ring, sums = [], []
            for _ in range(arguments.rounds):
                ring.append(switch.run(secret, workers, *bench, "--algorithm", "ring")["seconds"]["median"])
                sums.append(switch.run(secret, workers + spares, *bench, "--algorithm", "summation", "--spares", spares)["seconds"]["median"])
            gains = sorted(a / b for a, b in zip(ring, sums))
            print(f"| {workers} | {spares} | {statistics.median(ring):.3f} s | {statistics.median(sums):.3f} s | "
                  f"{statistics.median(gains):.2f}x ({gains[0]:.2f} to {gains[-1]:.2f}) | {predicted_gain(workers, spares):.2f}x |",
                  flush=True)


if __name__ == "__main__":
    main()
