#!/usr/bin/env python3
"""Data parallel training beside PyTorch's DistributedDataParallel over Gloo: two processes with one thread each, the same networks.

    .deps/venv/bin/python bench/compare_ddp.py --peer PATH/torch_ddp.py [--rounds 3] [--models lenet,vgg,gpt]

Both sides run alternately, each round in fresh processes. Printed: medians over the rounds, samples/s of both, their ratio, and what
communication leaves of the speed of the same ranks without it, measured by `yoke bench scaling` in turns with the other: when each goes its
own way, and when they wait for each other after every step but move nothing.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = os.environ.get("YOKE_BIN", str(ROOT / "build/yoke"))
OURS = {"lenet": (64, ["--model", "lenet"]), "vgg": (16, ["--model", "vgg_small"]),
        "gpt": (4, ["--model", "gpt2", "--model.layers", 6, "--model.width", 256, "--model.heads", 8, "--model.positions", 128,
                    "--model.vocabulary", 8192])}


def ours(model, extra):
    batch, words = OURS[model]
    command = [YOKE, "bench", "scaling", *words, "--nproc", 2, "--batch", batch, "--threads", 1, "--train.optimizer", "sgd", "--train.momentum", 0.9,
               "--json", "-q", *extra]
    rows = json.loads(subprocess.run([str(w) for w in command], check=True, capture_output=True, text=True).stdout)["results"]
    row = next(row for row in rows if row["nproc"] == 2)
    step = row["step_seconds"]["median"]
    return row["samples_per_s"], row["alone_step_seconds"] / step, row["in_step_seconds"] / step


def theirs(script, model):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script), "--model", model]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))["samples_per_s"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", type=pathlib.Path, required=True, help="torch_ddp.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", default="lenet,vgg,gpt")
    arguments, extra = parser.parse_known_args()  # the rest goes to `yoke bench scaling`
    print("| net | yoke, samples/s | PyTorch DDP | ratio | share without communication | share in step |")
    print("| --- | --- | --- | --- | --- | --- |")
    for model in arguments.models.split(","):
        rounds = [(*ours(model, extra), theirs(arguments.peer, model)) for _ in range(arguments.rounds)]
        speed, share, in_step, peer = (statistics.median(column) for column in zip(*rounds))
        spread = ", ".join(f"{a[0] / a[3]:.2f}" for a in rounds)
        print(f"| {model} | {speed:.0f} | {peer:.0f} | {speed / peer:.2f} ({spread}) | {share:.3f} | {in_step:.3f} |", flush=True)


if __name__ == "__main__":
    main()
