#!/usr/bin/env python3
"""Parameter servers over slow links, with and without overlap of communication and computation.

Network namespaces around a switch, a worker or a server in each, every link shaped in both directions. Runs with and without overlap
take turns, so that other load affects both. Needs root, ip and tc.

    sudo bench/compare_ps_overlap.py [--rate 1gbit] [--workers 2] [--servers 2] [--steps 16] [--rounds 3] [--batch 16] [--rule sync]

"Ideal" is the longer of computing and of moving all gradients (or all parameters, in the other direction) through a worker's link, or
a server's. Under `sync` no step is that short: the first gradient leaves when backward has computed it, and a parameter comes back
after its gradient (overlap_schedule.py). "Shortest" is the step of that schedule, with times of the layers as `yoke profile` measures
them before the runs, scaled to the computing of the run without overlap. "Hidden" is what overlap saves of the difference between a
step without overlap and the ideal one, "of possible" of that to the shortest.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from overlap_schedule import shortest_step
from switch import ROOT, YOKE, Switch
from two_machines import make_secret, why_not

UNITS = {"gbit": 1e9, "mbit": 1e6}


def bits_per_second(rate):
    unit = next(unit for unit in UNITS if rate.endswith(unit))
    return float(rate[:-len(unit)]) * UNITS[unit]


def train(switch, folder, arguments, *words):
    """Seconds of a step, of forward and backward in it, and bytes of the parameters."""
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    machines = arguments.workers + arguments.servers
    switch.run(folder / "secret", machines, "train", arguments.model, "--parallel.sync", "ps", "--ps.servers", arguments.servers, "--ps.policy",
               arguments.rule, "--data.batch_size", arguments.batch, "--steps", arguments.steps, "--train.threads", 1, "--train.evaluate",
               "false", "--out.dir", run, "--out.log_every", arguments.steps // 2, "-q", *words)
    summary = json.loads((run / "summary.json").read_text())
    split = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["split"]
    return {"step": summary["step_seconds"]["median"], "forward": split["forward"], "backward": split["backward"], "bytes": 4 * summary["parameters"]}


def profile(arguments):
    """Seconds of forward and backward, and bytes, of each layer."""
    words = [YOKE, "profile", arguments.model, "--data.batch_size", arguments.batch, "--train.threads", 1, "--json", "-q"]
    answer = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=ROOT, check=True)
    return [(layer["forward"], layer["backward"], layer["parameter_bytes"]) for layer in json.loads(answer.stdout)["layers"]]


def scaled(layers, run):
    forward, backward = (run[part] / sum(layer[i] for layer in layers) for i, part in enumerate(("forward", "backward")))
    return [(layer[0] * forward, layer[1] * backward, layer[2]) for layer in layers]


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
    layers = profile(arguments)
    with tempfile.TemporaryDirectory() as name, Switch(arguments.workers + arguments.servers, arguments.rate, arguments.queue) as switch:
        folder = pathlib.Path(name)
        make_secret(folder / "secret")
        print("| between steps | overlapped | gain | computing | ideal | hidden | shortest | of possible |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        gains, shares, possible = [], [], []
        for _ in range(arguments.rounds):
            plain = train(switch, folder, arguments, "--no-ps.overlap")
            overlapped = train(switch, folder, arguments)
            crowding = max(1, arguments.workers / arguments.servers)
            per_byte = 8 * crowding / bits_per_second(arguments.rate)
            compute = plain["forward"] + plain["backward"]
            ideal = max(compute, plain["bytes"] * per_byte)
            shortest = shortest_step(scaled(layers, plain), per_byte)
            gains.append(plain["step"] / overlapped["step"])
            shares.append((plain["step"] - overlapped["step"]) / (plain["step"] - ideal))
            possible.append((plain["step"] - overlapped["step"]) / (plain["step"] - shortest))
            print(f"| {plain['step']:.3f} s | {overlapped['step']:.3f} s | {gains[-1]:.2f}x | {compute:.3f} s | {ideal:.3f} s | "
                  f"{100 * shares[-1]:.0f} % | {shortest:.3f} s | {100 * possible[-1]:.0f} % |", flush=True)
        print(f"\nmedians: {statistics.median(gains):.2f}x, {100 * statistics.median(shares):.0f} % hidden, "
              f"{100 * statistics.median(possible):.0f} % of what this schedule can hide")


if __name__ == "__main__":
    main()
