#!/usr/bin/env python3
"""Data parallel training over a slow link: what overlap hides, what compression hooks bring.

Two network namespaces joined by a link shaped to 1 Gbit/s and to 200 Mbit/s, one rank with one thread in each. Needs root, ip and tc.

    sudo bench/shaped_links.py [--steps 12] [--model configs/vgg_small.toml] [--batch 16]
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
    """Medians of a run with one rank on each machine."""
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    nodes = [machines.run(YOKE, node, folder / "secret", YOKE, "train", *words, "--train.threads", 1, "--out.dir", run, "--out.log_every", 1,
                          "--train.evaluate", "false", "-q", stdout=subprocess.DEVNULL, cwd=ROOT) for node in range(2)]
    for node in nodes:
        error = node.communicate(timeout=600)[1]
        assert node.returncode == 0, error
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][4:]
    middle = lambda get: statistics.median(get(record) for record in records)
    return {"step": middle(lambda r: sum(r["split"].values())), "comm": middle(lambda r: r["comm_seconds"]),
            "exposed": middle(lambda r: r["split"]["communication"]), "backward": middle(lambda r: r["split"]["backward"])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--model", default="configs/vgg_small.toml")
    parser.add_argument("--batch", type=int, default=16)
    arguments = parser.parse_args()
    common = [arguments.model, "--data.batch_size", arguments.batch, "--steps", arguments.steps]
    if reason := why_not():
        sys.exit(reason)
    with tempfile.TemporaryDirectory() as name, Machines() as machines:
        folder = pathlib.Path(name)
        make_secret(folder / "secret")
        print("| link | how | step | communication | waited for | hidden of what can be hidden | against none |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for rate, hooks in [("1gbit", ["none", "delay"]), ("200mbit", ["none", "fp16", "int8", "powersgd:2", "topk:0.01"])]:
            machines.shape(rate)
            plain = None
            for hook in hooks:
                words = ["--ddp.delay_allreduce"] if hook == "delay" else ["--ddp.hook", hook]
                seen = train(machines, folder, *common, *words)
                plain = plain or seen["step"]
                # Communication can hide behind backward, and behind no more than it.
                hidden = (seen["comm"] - seen["exposed"]) / min(seen["comm"], seen["backward"])
                print(f"| {rate} | {hook} | {seen['step']:.3f} s | {seen['comm']:.3f} s | {seen['exposed']:.3f} s | "
                      f"{100 * max(0, hidden):.0f} % | {plain / seen['step']:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
