#!/usr/bin/env python3
"""Averaging over unequal links: roles and shares by the linear programme against equal shares, in real collaborative runs. Peers measure
their links themselves, or are told (--told).

Network namespaces around a switch, one peer in each, every link shaped in both directions. Both ways take turns, so that other load
affects both. The time of a step's averaging is that of its slowest peer. Needs root, ip and tc.

    sudo bench/collab_links.py [--rates 100mbit,20mbit,20mbit,5mbit] [--width 20000] [--steps 8] [--rounds 3] [--roles shares] [--told]

A rate is that of both directions, or UPLOAD/DOWNLOAD.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from switch import ROOT, Switch
from two_machines import why_not

YOKE = pathlib.Path(os.environ.get("YOKE_BIN", ROOT / "build/yoke"))
CONFIG = ROOT / "configs/mlp_tiny.toml"


class UnequalLinks(Switch):
    def __init__(self, rates, queue):
        super().__init__(len(rates), None, queue)
        self.rates = rates

    def _shape(self, name, device):
        sends = name in self.names
        index = self.names.index(name) if sends else int(device.removeprefix("port"))
        self.rate = self.rates[index].split("/")[0 if sends else -1]
        super()._shape(name, device)


def wait_for(file, process):
    for _ in range(1200):
        if file.exists() and file.read_text().endswith("\n"):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit(process.communicate()[1])


def averaging_seconds(switch, roles, arguments, folder):
    """Median of the slowest peer's averaging over the steps of the second half: in the first ones rounds show what links can do."""
    ticket, peers = folder / "ticket", []
    common = ["--train.threads", 1, "--out.log_every", 1, "--json"]
    for index, rate in enumerate(switch.rates):
        bandwidth = rate.replace("/", ",") if arguments.told else "auto"
        address = f"10.84.0.{index + 1}"
        start = ["start", CONFIG, "--ticket-file", ticket, "--target-batch", 64, "--steps", arguments.steps, "--meeting",
                 f"{address}:7000", "--collab.min_peers", len(switch.rates), "--collab.roles", roles, "--model.sizes", f"32,{arguments.width},10"]
        words = start if index == 0 else ["join", ticket]
        command = ["ip", "netns", "exec", switch.names[index], YOKE, "collab", *words, "--collab.listen", f"{address}:0",
                   "--collab.bandwidth", bandwidth, "--collab.timeout", "60s", "--data.batch_size", 16, "--out.dir", folder / str(index),
                   *common]
        peers.append(subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        if index == 0:
            wait_for(ticket, peers[0])
    answers = [peer.communicate(timeout=900) for peer in peers]
    for peer, (_, error) in zip(peers, answers):
        if peer.returncode != 0:
            sys.exit(error)
    slowest = {}
    for index in range(len(peers)):
        for line in (folder / str(index) / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            slowest.setdefault(record["step"], []).append(record["comm_seconds"])
    steps = sorted(step for step, times in slowest.items() if len(times) == len(peers))
    return statistics.median([max(slowest[step]) for step in steps[len(steps) // 2:]])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", default="100mbit,20mbit,20mbit,5mbit")
    parser.add_argument("--queue", default="1mb", help="what the sending end of a link holds before it drops packets")
    parser.add_argument("--width", type=int, default=20000, help="of the hidden layer: 43 parameters each")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--roles", default="auto", choices=("auto", "shares"))
    parser.add_argument("--told", action="store_true", help="peers are given the rates (collab.bandwidth) instead of measuring them")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    rates = arguments.rates.split(",")
    with tempfile.TemporaryDirectory() as place, UnequalLinks(rates, arguments.queue) as switch:
        shared, equal = [], []
        for turn in range(arguments.rounds):
            for roles, list_ in ((arguments.roles, shared), ("equal", equal)):
                folder = pathlib.Path(place) / f"{roles}-{turn}"
                folder.mkdir()
                list_.append(averaging_seconds(switch, roles, arguments, folder))
        gains = sorted(a / b for a, b in zip(equal, shared))
        print(f"| links | vector | equal shares | {arguments.roles}{', told' if arguments.told else ''} | gain |")
        print("| --- | --- | --- | --- | --- |")
        print(f"| {arguments.rates} | {43 * arguments.width * 4 / 1e6:.1f} MB | {statistics.median(equal):.2f} s | "
              f"{statistics.median(shared):.2f} s | {statistics.median(gains):.2f}x ({gains[0]:.2f} to {gains[-1]:.2f}) |")


if __name__ == "__main__":
    main()
