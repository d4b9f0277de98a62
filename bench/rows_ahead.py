#!/usr/bin/env python3
"""Rows of sparse tables over a slow link: asked for ahead, and when they are needed.

A worker and a server in two network namespaces joined by a shaped link. `sync` asks ahead; `bounded_delay` with a delay of 0 makes the same updates
and does not. Needs root, ip and tc.

    sudo bench/rows_ahead.py [--steps 40] [--rates 200mbit,50mbit] [--compute shifted_exp:30ms,1ms] [--rounds 3]
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
from two_machines import Machines, make_secret, sh, why_not


def train(machines, folder, *words):
    """Median seconds of a step, and how often rows were asked for ahead."""
    run = pathlib.Path(tempfile.mkdtemp(dir=folder))
    nodes = [machines.run(YOKE, node, folder / "secret", YOKE, "train", ROOT / "configs/sparse_lr.toml", "--parallel.sync", "ps", "--ps.servers", 1,
                          "--ps.sparse", "on", "--train.threads", 1, "--out.dir", run, "--out.log_every", 1, "--no-train.evaluate", "--checkpoint.every_steps", 0,
                          "-q", *words, stdout=subprocess.DEVNULL, cwd=ROOT) for node in range(2)]
    for node in nodes:
        error = node.communicate(timeout=600)[1]
        assert node.returncode == 0, error
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][4:]
    ahead = json.loads((run / "ps.json").read_text())["sparse"]["pulled_ahead"]
    return statistics.median(sum(record["split"].values()) for record in records), ahead


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--rates", default="200mbit,50mbit")
    parser.add_argument("--compute", default="shifted_exp:30ms,1ms", help="added to each minibatch (slowdown.law)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--features", default="1000000")
    parser.add_argument("--batch", default="1024")
    options = parser.parse_args()
    if reason := why_not():
        sys.exit(reason)
    common = ["--model.features", options.features, "--data.batch_size", options.batch, "--data.samples", 65536, "--steps", options.steps, "--slowdown.law", options.compute]
    ways = {"ahead": ["--ps.policy", "sync"], "when needed": ["--ps.policy", "bounded_delay", "--ps.max_delay", 0]}
    with tempfile.TemporaryDirectory() as name, Machines() as machines:
        folder = pathlib.Path(name)
        make_secret(folder / "secret")
        for rate in options.rates.split(","):
            for node in range(2):  # bursts smaller than a list of keys
                sh(*machines.inside(node), "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms")
            seen = {way: [] for way in ways}
            for _ in range(options.rounds):
                for way, words in ways.items():
                    seconds, ahead = train(machines, folder, *common, *words)
                    assert (ahead > 0) == (way == "ahead"), (way, ahead)
                    seen[way].append(seconds)
            step = {way: statistics.median(all_seconds) for way, all_seconds in seen.items()}
            print(f"{rate}: {1e3 * step['ahead']:.2f} ms a step ahead, {1e3 * step['when needed']:.2f} when needed: "
                  f"{step['when needed'] / step['ahead']:.2f}x", flush=True)


if __name__ == "__main__":
    main()
