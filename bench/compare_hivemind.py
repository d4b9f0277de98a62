#!/usr/bin/env python3
"""Averaging a vector over peers: `yoke bench average` beside hivemind's DecentralizedAverager, in turns.

    bench/compare_hivemind.py [--peers 2,4] [--bytes 16MB,100MB] [--rounds 3] [--iterations 5]
    sudo bench/compare_hivemind.py --rate 100mbit       # the loopback of a network namespace, shaped; needs ip and tc

The first call makes a virtual environment in .deps/hivemind and installs hivemind from PyPI. Both have all peers on this
machine, connected over the loopback. A step of hivemind is matchmaking and all-reduce; one of Yoke is handshakes and
all-reduce, encrypted. With --rate all peers share one link of that rate.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = pathlib.Path(os.environ.get("YOKE_BIN", ROOT / "build/yoke"))
VENV = ROOT / ".deps/hivemind"
SPACE = "yoke-hivemind"


def average_with_hivemind(peers, size, iterations):
    """Runs inside the virtual environment: prints the median seconds of a step."""
    import hivemind
    import torch

    torch.set_num_threads(1)
    local = {"host_maddrs": ["/ip4/127.0.0.1/tcp/0"], "nat_port_map": False, "auto_nat": False, "use_relay": False, "use_auto_relay": False}
    tables = [hivemind.DHT(start=True, **local)]
    while len(tables) < peers:
        tables.append(hivemind.DHT(start=True, initial_peers=tables[0].get_visible_maddrs(), **local))
    averagers = [hivemind.averaging.DecentralizedAverager(
        [torch.full((size // 4,), float(index))], dht=table, prefix="vector", start=True, target_group_size=peers, min_group_size=peers,
        min_matchmaking_time=1.0, request_timeout=0.5) for index, table in enumerate(tables)]
    seconds, failed = [], 0
    while len(seconds) < iterations + 1 and failed < 20:
        begin = time.perf_counter()
        steps = [averager.step(wait=False, timeout=600) for averager in averagers]
        if all(step.result() is not None for step in steps):
            seconds.append(time.perf_counter() - begin)
        else:
            failed += 1
    print(json.dumps({"seconds": statistics.median(seconds[1:]), "failed": failed}), flush=True)
    for one in [*averagers, *reversed(tables)]:
        one.shutdown()


def installed():
    python = VENV / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    if subprocess.run([python, "-c", "import hivemind"], capture_output=True).returncode != 0:
        subprocess.run([python, "-m", "pip", "install", "-q", "hivemind"], check=True)
    return python


class Loopback:
    """This machine's loopback, or a shaped one in a namespace of its own."""

    def __init__(self, rate):
        self.rate = rate
        self.prefix = ["ip", "netns", "exec", SPACE] if rate else []

    def __enter__(self):
        if self.rate:
            for words in (["netns", "add", SPACE], ["-n", SPACE, "link", "set", "lo", "mtu", "1500", "up"]):
                subprocess.run(["ip", *words], check=True)
            subprocess.run([*self.prefix, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", self.rate, "burst", "32kb", "limit", "1mb"],
                           check=True)
        return self

    def __exit__(self, *_):
        if self.rate:
            subprocess.run(["ip", "netns", "delete", SPACE], check=True)

    def result(self, *words):
        done = subprocess.run([*self.prefix, *map(str, words)], capture_output=True, text=True, timeout=1800)
        if done.returncode != 0:
            sys.exit(done.stderr)
        return json.loads(done.stdout[done.stdout.index("{"):])


def bytes_of(text):
    return int(float(text.removesuffix("MB")) * 1e6) // 4 * 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="2,4")
    parser.add_argument("--bytes", default="16MB,100MB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--rate", default="", help="shape the link, such as 100mbit")
    parser.add_argument("--inside", nargs=3, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        return average_with_hivemind(*arguments.inside)
    python = installed()
    print("| link | peers | vector | Yoke | hivemind | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    with Loopback(arguments.rate) as loopback:
        for peers in map(int, arguments.peers.split(",")):
            for text in arguments.bytes.split(","):
                ours, theirs = [], []
                for _ in range(arguments.rounds):
                    words = [YOKE, "bench", "average", "--peers", peers, "--bytes", bytes_of(text), "--iterations", arguments.iterations]
                    ours.append(loopback.result(*words, "--json", "-q")["seconds"]["median"])
                    theirs.append(loopback.result(python, __file__, "--inside", peers, bytes_of(text), arguments.iterations)["seconds"])
                ratios = sorted(b / a for a, b in zip(ours, theirs))
                print(f"| {arguments.rate or 'loopback'} | {peers} | {text} | {statistics.median(ours):.3f} s | {statistics.median(theirs):.3f} s | "
                      f"{statistics.median(ratios):.1f}x ({ratios[0]:.1f} to {ratios[-1]:.1f}) |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
