#!/usr/bin/env python3
"""Tensor parallelism and ZeRO 3 beside PyTorch's DTensor and FSDP2 over Gloo: two processes with one thread each, the same networks.

    .deps/venv/bin/python bench/compare_mesh.py --peers FOLDER [--rounds 3] [--only tensor,zero3] [--steps 12]

FOLDER holds torch_tensor.py and torch_fsdp.py. Both sides run alternately, each round in fresh processes. Printed: medians over the rounds of
the median step, their ratio, and for ZeRO 3 the speed relative to our own data parallel training of the same network.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = os.environ.get("YOKE_BIN", str(ROOT / "build/yoke"))
NETS = {  # recipe, keys
    "gpt": ("gpt2_tiny", ["--model.layers", 6, "--model.width", 256, "--model.heads", 8, "--model.positions", 128, "--model.vocabulary", 8192,
                          "--model.dropout", 0, "--train.optimizer", "sgd", "--train.clip_norm", 0]),
    "mlp": ("mlp_tiny", ["--model.sizes", ",".join(["2048"] * 7 + ["10"])]),
    "vgg": ("vgg_small", ["--data.name", "synthetic", "--data.samples", 512]),
}
ROWS = [("tensor", "gpt", 4), ("tensor", "mlp", 64), ("zero3", "gpt", 4), ("zero3", "vgg", 16)]
HOW = {"tensor": ["--parallel.tensor", 2], "zero3": ["--parallel.zero", 3], "ddp": []}
PEER = {"tensor": "torch_tensor.py", "zero3": "torch_fsdp.py"}


def ours(how, net, batch, steps):
    config, words = NETS[net]
    with tempfile.TemporaryDirectory() as folder:
        command = [YOKE, "train", ROOT / f"configs/{config}.toml", "--nproc", 2, "--train.threads", 1, "--data.batch_size", batch,
                   "--train.momentum", 0.9, "--steps", steps, "--train.schedule", "constant", "--train.warmup_steps", 0, "--no-train.evaluate",
                   "--checkpoint.every_steps", 0, "--out.dir", folder, "--resume", "never", "--out.log_every", steps, "--json", "-q", *words,
                   *HOW[how]]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        return json.loads(done.stdout)["step_seconds"]["median"]


def theirs(folder, how, net, batch, steps):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(folder / PEER[how]), "--model", net,
               "--batch", str(batch), "--steps", "3", "--repeats", str(max(3, steps // 3))]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    line = next((line for line in done.stdout.splitlines() if line.startswith("{")), None)  # Gloo may abort at teardown, after it
    if line is None:
        sys.exit(done.stdout + done.stderr)
    return json.loads(line)["step_ms"] / 1000


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=pathlib.Path, required=True, help="folder of torch_tensor.py and torch_fsdp.py")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", default="tensor,zero3")
    arguments = parser.parse_args()
    print("| how | net | batch | yoke, ms | PyTorch, ms | ratio | beside our data parallel |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for how, net, batch in ROWS:
        if how not in arguments.only.split(","):
            continue
        rounds = []
        for _ in range(arguments.rounds):
            own = ours(how, net, batch, arguments.steps)
            ddp = ours("ddp", net, batch, arguments.steps) if how == "zero3" else None
            rounds.append((own, theirs(arguments.peers, how, net, batch, arguments.steps), ddp))
        own, peer = (statistics.median(row[i] for row in rounds) for i in (0, 1))
        ratios = [row[1] / row[0] for row in rounds]
        beside = f"{statistics.median(row[2] / row[0] for row in rounds):.2f}" if how == "zero3" else ""
        spread = ", ".join(f"{one:.2f}" for one in ratios)
        print(f"| {how} | {net} | {batch} | {1000 * own:.0f} | {1000 * peer:.0f} | {statistics.median(ratios):.2f} ({spread}) | {beside} |", flush=True)


if __name__ == "__main__":
    main()
