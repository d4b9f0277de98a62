#!/usr/bin/env python3
"""Summation by workers and spare machines against the ring all-reduce of the workers, over equal links.

Network namespaces around a switch, one rank in each, every link shaped in both directions. Ring and summation take turns, so that
other load affects both. Needs root, ip and tc.

    sudo bench/compare_hybrid.py [--rate 100mbit] [--queue 1mb] [--bytes 16M] [--rounds 3] [--layouts 4:0,4:2,4:4]
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from switch import Switch
from two_machines import make_secret, why_not


def result_of(switch, secret, machines, *words):
    """What the benchmark says that runs on the first `machines` machines."""
    return json.loads(switch.run(secret, machines, *words, "--json"))["results"][0]


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
                ring.append(result_of(switch, secret, workers, *bench, "--algorithm", "ring")["seconds"]["median"])
                sums.append(result_of(switch, secret, workers + spares, *bench, "--algorithm", "summation", "--spares", spares)["seconds"]["median"])
            gains = sorted(a / b for a, b in zip(ring, sums))
            print(f"| {workers} | {spares} | {statistics.median(ring):.3f} s | {statistics.median(sums):.3f} s | "
                  f"{statistics.median(gains):.2f}x ({gains[0]:.2f} to {gains[-1]:.2f}) | {predicted_gain(workers, spares):.2f}x |",
                  flush=True)


if __name__ == "__main__":
    main()
