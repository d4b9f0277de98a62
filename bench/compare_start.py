#!/usr/bin/env python3
"""From the command to the end of one training step on N ranks: `yoke train` beside PyTorch's torchrun and DDP over Gloo.

    bench/compare_start.py [--ranks 2,8] [--rounds 5]

Medians of alternating runs. Needs PyTorch in .deps/venv (tools/setup --oracles).
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

TORCH = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(8, 32)).sum().backward()
optimizer.step()
dist.destroy_process_group()
"""


def seconds(words):
    begin = time.monotonic()
    subprocess.run([str(word) for word in words], check=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,8")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("| ranks | yoke train | torchrun | ratio |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        script = pathlib.Path(folder) / "step.py"
        script.write_text(TORCH)
        for ranks in options.ranks.split(","):
            ours, theirs = [], []
            for number in range(options.rounds):
                ours.append(seconds([ROOT / "build/yoke", "train", ROOT / "configs/mlp_tiny.toml", "--nproc", ranks, "--steps", 1, "--no-train.evaluate",
                                     "--out.dir", f"{folder}/{ranks}-{number}"]))
                theirs.append(seconds([ROOT / ".deps/venv/bin/torchrun", "--nproc-per-node", ranks, script]))
            one, other = statistics.median(ours), statistics.median(theirs)
            print(f"| {ranks} | {one:.2f} s | {other:.2f} s | {other / one:.0f}x |", flush=True)


if __name__ == "__main__":
    main()
