#!/usr/bin/env python3
"""Eight peers of four speeds over shaped, lossy links, three of which leave and come back: samples per second against the sum of what
the peers do alone, and the loss against one device.

A peer's speed is a delay for each lease of samples (YOKE_FAULT), so that the peers need not share the cores of this machine. Network
namespaces around a switch, one peer in each. Needs root, ip, tc and nft.

    sudo bench/collab_crowd.py [--steps 20] [--target-batch 4096] [--delays 20,40,80,160] [--rates 100mbit,50mbit,20mbit,20mbit] [--loss 5]
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from switch import ROOT, Switch
from two_machines import sh, why_not

YOKE = pathlib.Path(os.environ.get("YOKE_BIN", ROOT / "build/yoke"))
CONFIG = ROOT / "configs/mlp_tiny.toml"
BATCH = 16  # samples of a lease


class LossyLinks(Switch):
    """A rate for each machine; packets to it are lost."""

    def __init__(self, rates, loss):
        super().__init__(len(rates), None, "1mb")
        self.rates, self.loss = rates, loss

    def _shape(self, name, device):
        index = self.names.index(name) if name in self.names else int(device.removeprefix("port"))
        self.rate = self.rates[index]
        super()._shape(name, device)
        if name in self.names and self.loss > 0:
            for rule in ("table inet f", "chain inet f i { type filter hook input priority 0; }",
                         f"rule inet f i iifname eth0 numgen random mod 1000 < {self.loss} drop"):
                sh("ip", "netns", "exec", name, "nft", "add", rule)


class Crowd:
    def __init__(self, links, folder, arguments):
        self.links, self.folder, self.arguments, self.ticket = links, folder, arguments, folder / "ticket"
        folder.mkdir()

    def peer(self, index, *words):
        address = f"10.84.0.{index + 1}"
        delay = self.arguments.delays[index % len(self.arguments.delays)]
        command = ["ip", "netns", "exec", self.links.names[index], YOKE, "collab", *words, "--collab.listen", f"{address}:0",
                   "--collab.identity", self.folder / f"key-{index}", "--collab.timeout", "5s", "--data.batch_size", BATCH, "--train.threads", 1,
                   "--out.dir", self.folder / f"{index}-{time.monotonic_ns()}", "--out.log_every", 1, "--json"]
        return subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env={**os.environ, "YOKE_FAULT": f"at=collab.lease:delay:{delay}ms"})

    def start(self, index, steps, target, least):
        starter = self.peer(index, "start", CONFIG, "--ticket-file", self.ticket, "--target-batch", target, "--steps", steps, "--data.samples", 4 * self.arguments.target_batch, "--meeting",
                            f"10.84.0.{index + 1}:7000", "--collab.min_peers", least)
        while not (self.ticket.exists() and self.ticket.read_text().endswith("\n")):
            if starter.poll() is not None:
                sys.exit(starter.communicate()[1])
            time.sleep(0.05)
        return starter

    def watch(self):
        done = subprocess.run(["ip", "netns", "exec", self.links.names[0], YOKE, "collab", "watch", self.ticket, "--json"], capture_output=True,
                              text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait_for_step(self, step):
        while (status := self.watch()) and status["epoch"] < step:
            time.sleep(0.2)


def finished(process):
    out, error = process.communicate(timeout=900)
    if process.returncode not in (0, 128 + signal.SIGTERM):
        sys.exit(error)
    return json.loads(out)


def records_of(folder, index):
    return [json.loads(line) for line in next(folder.glob(f"{index}-*/metrics.jsonl")).read_text().splitlines()]


def rate_of(records):
    """Samples per second between the first and the last step."""
    first, last = records[0], records[-1]
    return (last["samples"] - first["samples"]) / (last["time"] - first["time"])


def alone(links, folder, arguments, index):
    crowd = Crowd(links, folder, arguments)
    finished(crowd.start(index, steps=6, target=4 * BATCH, least=1))
    return rate_of(records_of(folder, index))


def together(links, folder, arguments):
    crowd = Crowd(links, folder, arguments)
    count = len(links.names)
    starter = crowd.start(0, arguments.steps, arguments.target_batch, least=count - 3)
    peers = {index: crowd.peer(index, "join", crowd.ticket) for index in range(1, count)}
    for place, index in enumerate((count - 3, count - 2, count - 1)):  # one after the other leaves, and comes back
        crowd.wait_for_step(arguments.steps * (place + 1) // 5)
        peers[index].send_signal(signal.SIGTERM)
        finished(peers[index])
        peers[index] = crowd.peer(index, "join", crowd.ticket)
    for process in [starter, *peers.values()]:
        finished(process)
    return records_of(folder, 0)


def one_device(folder, arguments):
    subprocess.run([str(w) for w in [YOKE, "train", CONFIG, "--data.batch_size", arguments.target_batch, "--data.samples", 4 * arguments.target_batch, "--steps", arguments.steps, "--out.log_every",
                                     1, "--train.evaluate", "false", "--train.threads", 1, "--out.dir", folder, "--resume", "never", "-q"]], check=True,
                   stdout=subprocess.DEVNULL)
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def main():
    numbers = lambda text: [int(word) for word in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--target-batch", type=int, default=4096)
    parser.add_argument("--delays", type=numbers, default="20,40,80,160", help="milliseconds for a lease, by peer in turns")
    parser.add_argument("--rates", default="100mbit,50mbit,20mbit,20mbit")
    parser.add_argument("--loss", type=int, default=5, help="of a thousand packets")
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as place, LossyLinks(2 * arguments.rates.split(","), arguments.loss) as links:
        folder = pathlib.Path(place)
        speeds = [alone(links, folder / f"alone-{index}", arguments, index) for index in range(len(links.names))]
        records = together(links, folder / "together", arguments)
        losses = one_device(folder / "one", arguments)
    print("| peers | sum of the peers alone | together | share | last loss | of one device |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(f"| {len(speeds)} | {sum(speeds):.0f} samples/s | {rate_of(records):.0f} samples/s | {100 * rate_of(records) / sum(speeds):.0f} % | "
          f"{records[-1]['loss']:.4f} | {losses[-1]:.4f} |")


if __name__ == "__main__":
    main()
