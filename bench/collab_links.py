#!/usr/bin/env python3
"""Averaging over unequal links: shares by bandwidth against equal shares, in real collaborative runs.

Network namespaces around a switch, one peer in each, every link shaped in both directions. Both ways take turns, so that other load
affects both. The time of a step's averaging is that of its slowest peer. Needs root, ip and tc.

    sudo bench/collab_links.py [--rates 100mbit,20mbit,20mbit,5mbit] [--width 20000] [--steps 4] [--rounds 3]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from compare_hybrid import ROOT, YOKE, Switch, why_not

CONFIG = ROOT / "configs/mlp_tiny.toml"


class UnequalLinks(Switch):
    def __init__(self, rates, queue):
        super().__init__(len(rates), None, queue)
        self.rates = rates

    def _shape(self, name, device):
        index = self.names.index(name) if name in self.names else int(device.removeprefix("port"))
        self.rate = self.rates[index]
        super()._shape(name, device)


def wait_for(file, process):
    for _ in range(1200):
        if file.exists() and file.read_text().endswith("\n"):
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    sys.exit(process.communicate()[1])


def averaging_seconds(switch, bandwidths, arguments, folder):
    """Median over the steps of the slowest peer's averaging."""
    ticket, peers = folder / "ticket", []
    common = ["--train.threads", 1, "--out.log_every", 1, "--json"]
    for index, bandwidth in enumerate(bandwidths):
        address = f"10.84.0.{index + 1}"
        start = ["start", CONFIG, "--ticket-file", ticket, "--target-batch", 64, "--steps", arguments.steps, "--meeting",
                 f"{address}:7000", "--collab.min_peers", len(bandwidths), "--model.sizes", f"32,{arguments.width},10"]
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
    return statistics.median([max(times) for times in slowest.values() if len(times) == len(peers)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rates", default="100mbit,20mbit,20mbit,5mbit")
    parser.add_argument("--queue", default="1mb", help="what the sending end of a link holds before it drops packets")
    parser.add_argument("--width", type=int, default=20000, help="of the hidden layer: 43 parameters each")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    rates = arguments.rates.split(",")
    with tempfile.TemporaryDirectory() as place, UnequalLinks(rates, arguments.queue) as switch:
        shared, equal = [], []
        for turn in range(arguments.rounds):
            for name, bandwidths, list_ in (("shared", rates, shared), ("equal", ["20mbit"] * len(rates), equal)):
                folder = pathlib.Path(place) / f"{name}-{turn}"
                folder.mkdir()
                list_.append(averaging_seconds(switch, bandwidths, arguments, folder))
        gains = sorted(a / b for a, b in zip(equal, shared))
        print("| links | vector | equal shares | shares by bandwidth | gain |")
        print("| --- | --- | --- | --- | --- |")
        print(f"| {arguments.rates} | {43 * arguments.width * 4 / 1e6:.1f} MB | {statistics.median(equal):.2f} s | "
              f"{statistics.median(shared):.2f} s | {statistics.median(gains):.2f}x ({gains[0]:.2f} to {gains[-1]:.2f}) |")


if __name__ == "__main__":
    main()
