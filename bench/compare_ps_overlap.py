#!/usr/bin/env python3
"""Parameter servers over slow links, with and without overlap of communication and computation.

Network namespaces around a switch, a worker or a server in each, every link shaped in both directions. Runs with and without overlap
take turns, so that other load affects both. Needs root, ip and tc.

    sudo bench/compare_ps_overlap.py [--rate 1gbit] [--workers 2] [--servers 2] [--steps 16] [--rounds 3] [--batch 16] [--rule sync]

"Ideal" is the longer of computing and of moving all gradients (or all parameters, in the other direction) through a worker's link, or
a server's. "Hidden" is what overlap saves of the difference between a step without overlap and the ideal one.
"""
import argparse
import json
import pathlib
import statistics
import sys
import tempfile

from switch import Switch
from two_machines import make_secret, why_not

UNITS = {"gbit": 1e9, "mbit": 1e6}


def bits_per_second(rate):
    unit = next(unit for unit in UNITS if rate.endswith(unit))
    return float(rate[:-len(unit)]) * UNITS[unit]


def train(switch, folder, arguments, *words):
    """Seconds of a step, of computing in it, and bytes of the parameters."""
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    machines = arguments.workers + arguments.servers
    switch.run(folder / "secret", machines, "train", arguments.model, "--parallel.sync", "ps", "--ps.servers", arguments.servers, "--ps.policy",
               arguments.rule, "--data.batch_size", arguments.batch, "--steps", arguments.steps, "--train.threads", 1, "--train.evaluate",
               "false", "--out.dir", run, "--out.log_every", arguments.steps // 2, "-q", *words)
    summary = json.loads((run / "summary.json").read_text())
    split = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["split"]
    return {"step": summary["step_seconds"]["median"], "compute": split["forward"] + split["backward"], "bytes": 4 * summary["parameters"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--queue", default="1mb", help="what the sending end of a link holds before it drops packets")
    parser.add_argument("--model", default="configs/vgg_small.toml")
    parser.add_argument("--rule", default="sync")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name, Switch(arguments.workers + arguments.servers, arguments.rate, arguments.queue) as switch:
        folder = pathlib.Path(name)
        make_secret(folder / "secret")
        print("| between steps | overlapped | gain | computing | ideal | hidden |")
        print("| --- | --- | --- | --- | --- | --- |")
        gains, shares = [], []
        for _ in range(arguments.rounds):
            plain = train(switch, folder, arguments, "--no-ps.overlap")
            overlapped = train(switch, folder, arguments)
            crowding = max(1, arguments.workers / arguments.servers)
            moving = 8 * plain["bytes"] * crowding / bits_per_second(arguments.rate)
            ideal = max(plain["compute"], moving)
            gains.append(plain["step"] / overlapped["step"])
            shares.append((plain["step"] - overlapped["step"]) / (plain["step"] - ideal))
            print(f"| {plain['step']:.3f} s | {overlapped['step']:.3f} s | {gains[-1]:.2f}x | {plain['compute']:.3f} s | {ideal:.3f} s | "
                  f"{100 * shares[-1]:.0f} % |", flush=True)
        print(f"\nmedians: {statistics.median(gains):.2f}x, {100 * statistics.median(shares):.0f} % hidden")


if __name__ == "__main__":
    main()
