#!/usr/bin/env python3
"""Pipelines beside torch.distributed.pipelining: two processes with one thread each, the same layers and micro-batches.

    .deps/venv/bin/python bench/compare_pipeline.py --peer PATH/torch_pipeline.py [--rounds 5]

Both sides run alternately, each round in fresh processes; medians of the rounds and the ratio of the fastest ones are printed.
The net is eight linear layers of 1024 (ReLU between them), 8 micro-batches of 32 samples, SGD with momentum.
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
WIDTH, LAYERS, MICRO, PARTS = 1024, 8, 32, 8


def ours(schedule, world, steps):
    with tempfile.TemporaryDirectory() as folder:
        recipe = pathlib.Path(folder) / "recipe.toml"
        recipe.write_text(f"""
[model]
name = "mlp"
sizes = {[WIDTH] * (LAYERS + 1)}
[data]
name = "synthetic"
samples = {MICRO * PARTS}
batch_size = {MICRO * PARTS}
[train]
steps = {steps}
optimizer = "sgd"
lr = 0.01
momentum = 0.9
threads = 1
evaluate = false
[checkpoint]
every_steps = 0
[out]
dir = "{folder}/run"
report = false
tensorboard = false
""")
        words = [os.environ.get("YOKE_BIN", str(ROOT / "build/yoke")), "train", str(recipe), "--json", "-q"]
        if world > 1:
            words += ["--nproc", str(world), "--parallel.pipeline", str(world), "--pipeline.schedule", schedule,
                      "--pipeline.microbatches", str(PARTS), "--pipeline.stages", "0-3,4-7"]
        else:  # the same micro-batches, one after the other
            words += ["--data.batch_size", str(MICRO), "--train.accumulate", str(PARTS)]
        done = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        bubble = None
        if world > 1:
            bubble = json.loads((pathlib.Path(folder) / "run/pipeline.json").read_text())["bubble_fraction"]
        return 1000 * done["step_seconds"]["median"], bubble


def peer(script, schedule, world):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world)] if world > 1 else [sys.executable]
    words += [str(script), "--model", "mlp", "--schedule", schedule, "--microbatches", str(PARTS), "--micro", str(MICRO)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment, cwd=script.parent)
    return json.loads(done.stdout.strip().splitlines()[-1])["step_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--schedules", default="gpipe,1f1b")
    arguments = parser.parse_args()
    for schedule in arguments.schedules.split(","):
        rows = [(ours(schedule, 2, arguments.steps), peer(arguments.peer, schedule, 2), ours(schedule, 1, arguments.steps)[0],
                 peer(arguments.peer, schedule, 1)) for _ in range(arguments.rounds)]
        mine, theirs = [r[0][0] for r in rows], [r[1] for r in rows]
        one, one_theirs = [r[2] for r in rows], [r[3] for r in rows]
        median = statistics.median
        print(f"{schedule}: yoke {median(mine):.1f} ms (one process {median(one):.1f}), peer {median(theirs):.1f} ms (one {median(one_theirs):.1f}); "
              f"ratio of medians {median(theirs) / median(mine):.2f}, of the fastest {min(theirs) / min(mine):.2f}; "
              f"bubble {1 - median(one) / 2 / median(mine):.2f} (timeline {median([r[0][1] for r in rows]):.2f}), "
              f"peer's {1 - median(one_theirs) / 2 / median(theirs):.2f}", flush=True)


if __name__ == "__main__":
    main()
