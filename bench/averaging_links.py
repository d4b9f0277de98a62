#!/usr/bin/env python3
"""Averaging now and then over a real slow link, beside what `yoke lab averaging` models.

Two network namespaces joined by a link shaped to 100 Mbit/s, one rank with one thread in each. Needs root, ip and tc.

    sudo bench/averaging_links.py [--rate 100mbit] [--steps 64] [--every 8] [--model configs/vgg_small.toml] [--batch 16]
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = ROOT / "build/yoke"
sys.path.insert(0, str(ROOT / "tests"))
from two_machines import Machines, make_secret, why_not


def train(machines, folder, *words):
    """Seconds a step, of it waited for the link, bytes a rank sends in a step, loss at the end."""
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    nodes = [machines.run(YOKE, node, folder / "secret", YOKE, "train", *words, "--train.threads", 1, "--out.dir", run,
                          "--train.evaluate", "false", "--checkpoint.every_steps", 0, "-q", stdout=subprocess.DEVNULL, cwd=ROOT) for node in range(2)]
    for node in nodes:
        error = node.communicate(timeout=900)[1]
        assert node.returncode == 0, error
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    first, last = records[0], records[-1]
    seconds = (last["time"] - first["time"]) / (last["step"] - first["step"])
    exposed = statistics.mean(r["split"]["communication"] for r in records[1:])
    sent = json.loads((run / "summary.json").read_text())["communication"]["data"]
    return seconds, exposed, statistics.mean(sent), last["loss"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", default="100mbit")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--model", default="configs/vgg_small.toml")
    parser.add_argument("--batch", type=int, default=16)
    arguments = parser.parse_args()
    if reason := why_not():
        sys.exit(reason + "; `yoke lab averaging` models the link instead")
    average, every = ["--parallel.sync", "average"], ["--average.every", arguments.every]
    ways = {"ddp": [], "local": [*average, *every], "end": [*average, "--average.method", "end"],
            "diloco": [*average, *every, "--average.method", "diloco"],
            "diloco_streaming": [*average, *every, "--average.method", "diloco", "--average.fragments", 4, "--average.overlap", arguments.every // 4],
            "gossip_ring": [*average, "--average.method", "gossip", "--average.overlap", 1]}
    # Rounds fall into every record equally often.
    common = [arguments.model, "--data.batch_size", arguments.batch, "--steps", arguments.steps, "--out.log_every", arguments.every]
    with tempfile.TemporaryDirectory() as name, Machines() as machines:
        folder = pathlib.Path(name)
        make_secret(folder / "secret")
        machines.shape(arguments.rate)
        print("| method | step | waited for the link | sent in a step | loss | against ddp |")
        print("| --- | --- | --- | --- | --- | --- |")
        plain = None
        for way, words in ways.items():
            seconds, exposed, sent, loss = train(machines, folder, *common, *words)
            plain = plain or seconds
            print(f"| {way} | {seconds:.3f} s | {exposed:.3f} s | {sent / 1e6:.3f} MB | {loss:.3f} | {plain / seconds:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
