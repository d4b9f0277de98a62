#!/usr/bin/env python3
"""Same bits, budgets and out of memory on a GPU: tests/gpu/repeat_and_memory.py build-cuda/yoke [--only bits,replicas,cost,budget,memory,offload]

bits     each model twice with train.deterministic = true, and once more killed and resumed: one parameter hash
replicas two ranks whose steps are recorded as CUDA graphs, and the same without: one parameter hash
cost     what determinism costs, with the GPU to itself
budget   train.recompute = budget:<bytes> of GPT-2 124M: the peak is within it, or the smallest possible is named
memory   a batch that is too large: exit 2, and the batch that the message names fits
offload  GPT-2 774M with parallel.zero = 3 and parallel.offload = "all" peaks at 40 % of what it needs without, or less

Prints a table and ends with exit code 1 where a row is wrong. Not run by ctest: it needs a GPU and a build with
-DYOKE_CUDA=ON. About seven minutes on an H200.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

GPT2 = ["configs/gpt2_124m.toml"]
SMALL = ["--data.name", "synthetic", "--data.samples", "512", "--no-train.evaluate", "--no-out.report"]
IMAGES = SMALL + ["--data.batch_size", "32"]

# name: options of `yoke train`
RECIPES = {
    "gpt2 124m bf16": GPT2 + SMALL + ["--data.batch_size", "16", "--train.precision", "bf16"],
    "gpt2 124m bf16, recompute": GPT2 + SMALL + ["--data.batch_size", "16", "--train.precision", "bf16", "--train.recompute",
                                                 "blocks"],
    "gpt2 tiny fp32, dropout": ["configs/gpt2_tiny.toml"] + SMALL + ["--model.dropout", "0.1"],
    "gpt2 tiny fp32, no graph": ["configs/gpt2_tiny.toml"] + SMALL + ["--no-train.cuda_graph", "--model.dropout", "0.1"],
    "gpt2 tiny fp16": ["configs/gpt2_tiny.toml"] + SMALL + ["--train.precision", "fp16"],
    "gpt2 tiny on two ranks": ["configs/gpt2_tiny.toml"] + SMALL + ["--nproc", "2"],
    "lenet fp32": ["configs/lenet_fashion.toml"] + IMAGES,
    "resnet50 bf16": ["configs/resnet50_synthetic.toml"] + IMAGES + ["--train.precision", "bf16"],
    "inception_v3 bf16": ["configs/inception_v3_synthetic.toml"] + IMAGES + ["--train.precision", "bf16"],
    "vgg16 bf16": ["configs/vgg16_synthetic.toml"] + IMAGES + ["--train.precision", "bf16"],
    "alexnet bf16, 200x200": ["configs/alexnet_synthetic.toml", "--model.image_size", "200"] + IMAGES +
                             ["--train.precision", "bf16"],
    "s2vt fp32": ["configs/s2vt_synthetic.toml"] + SMALL + ["--data.batch_size", "8"],
    "sparse_lr fp32": ["configs/sparse_lr.toml"] + SMALL,
}
STEPS, EVERY = 14, 4

# Of two ranks, and why they are not recorded ("": they are).
LATE = ["--ddp.delay_allreduce"]
TINY = ["configs/gpt2_tiny.toml"] + SMALL + LATE
REPLICAS = {
    "gpt2 tiny fp32, clipped": (TINY + ["--train.clip_norm", "0.5"], ""),
    "gpt2 tiny bf16, dropout": (TINY + ["--train.precision", "bf16", "--model.dropout", "0.1"], ""),
    "gpt2 tiny, 2 micro-batches": (TINY + ["--train.accumulate", "2"], ""),
    "gpt2 tiny, bf16 messages": (TINY + ["--ddp.hook", "bf16"], ""),
    "lenet fp32": (["configs/lenet_fashion.toml"] + IMAGES + LATE, ""),
    "resnet50 bf16": (["configs/resnet50_synthetic.toml"] + IMAGES + ["--train.precision", "bf16"] + LATE, ""),
    "gpt2 tiny, overlapped": (["configs/gpt2_tiny.toml"] + SMALL, "ddp.delay_allreduce"),
    "gpt2 tiny fp16": (TINY + ["--train.precision", "fp16"], "fp16"),
    "gpt2 tiny, last batch smaller": (TINY + ["--no-data.drop_last"], "data.drop_last"),
}


class Table:
    def __init__(self):
        self.wrong = 0

    def row(self, name, right, text):
        self.wrong += not right
        print(f"{name:40s} {'ok   ' if right else 'WRONG'} {text}", flush=True)


def run(words, timeout=240):
    process = subprocess.run(words, capture_output=True, text=True, timeout=timeout)
    return process.returncode, process.stdout, process.stderr


def train(yoke, recipe, out, *more):
    return [yoke, "train", *recipe, "--device", "cuda", "--steps", str(STEPS), "--checkpoint.every_steps", str(EVERY),
            "--out.log_every", "1", "--out.dir", str(out), "--json", *more]


def killed_and_resumed(command):
    """Killed while it commits its second checkpoint, then started again."""
    fault = {**os.environ, "YOKE_FAULT": "rank=0,at=checkpoint.commit,hit=2:kill"}
    killed = subprocess.run(command, capture_output=True, env=fault, timeout=240).returncode != 0
    return killed, run(command)


def bits_of(yoke, recipe):
    """right, text"""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        summaries = []
        for name, more in (("a", ["--train.deterministic"]), ("b", ["--train.deterministic"]), ("free", [])):
            code, out, err = run(train(yoke, recipe, folder / name, *more))
            if code != 0:
                return False, f"{name}: exit {code}: {err.strip()[-500:]}"
            summaries.append(json.loads(out))
        killed, (code, out, err) = killed_and_resumed(train(yoke, recipe, folder / "killed", "--train.deterministic"))
        if code != 0:
            return False, f"resumed: exit {code}: {err.strip()[-500:]}"
        resumed = json.loads(out)
    a, b, free = (one["parameter_hash"] for one in summaries)
    times = [one["step_seconds"]["median"] * 1e3 for one in summaries]
    same, again = a == b, a == resumed["parameter_hash"]
    at = resumed.get("resumed_from")
    note = " ".join(re.findall(r"not bit-identical[^\n]*|bit-identical[^\n]*", err)) or "no note"
    text = (f"twice {'same' if same else 'DIFFER'}, resumed at {at} {'same' if again else 'DIFFERS'} ({note}); "
            f"step {times[0]:.2f} ms, without {times[2]:.2f} ms{'' if free == a else ' and other bits'}")
    return same and again and killed and at is not None, text


def check_bits(yoke, table):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:  # they share the GPU: times only say roughly
        jobs = {name: pool.submit(bits_of, yoke, recipe) for name, recipe in RECIPES.items()}
        for name, job in jobs.items():
            table.row(name, *job.result())


def replicas_of(yoke, recipe, reason):
    """right, text"""
    hashes, times, note = [], [], ""
    # A key that has no effect is refused.
    recordable = reason == ""
    for more in ([], ["--no-train.cuda_graph"] if recordable else []):
        with tempfile.TemporaryDirectory() as folder:
            code, out, err = run(train(yoke, recipe, folder, "--train.deterministic", "--nproc", "2", *more))
        if code != 0:
            return False, f"exit {code}: {err.strip()[-500:]}"
        summary = json.loads(out)
        hashes.append(summary["parameter_hash"])
        times.append(summary["step_seconds"]["median"] * 1e3)
        note += " ".join(re.findall(r"not recorded as CUDA graphs: [^\n]*", err))
    said = reason in note if reason else note == ""
    return (hashes[0] == hashes[1] and said,
            f"{'same' if hashes[0] == hashes[1] else 'DIFFER'}; step {times[0]:.2f} ms, not recorded {times[1]:.2f} ms {note}")


def check_replicas(yoke, table):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:  # they share the GPU: times only say roughly
        jobs = {name: pool.submit(replicas_of, yoke, *row) for name, row in REPLICAS.items()}
        for name, job in jobs.items():
            table.row(f"two ranks, {name}", *job.result())


def bench(yoke, *words, steps=5):
    code, out, err = run([yoke, "bench", "step", "--device", "cuda", "--precision", "bf16", "--steps", str(steps), "--json", *words])
    return code, json.loads(out)["results"][0] if code == 0 else {}, err


def check_cost(yoke, table):
    for model, batch in (("gpt2", 16), ("resnet50", 128), ("vgg16", 64)):
        milliseconds = []
        for more in ([], ["--train.deterministic"]):
            code, result, err = bench(yoke, "--model", model, "--batch", str(batch), *more)
            if code != 0:
                return table.row(f"cost {model}", False, err[-300:])
            milliseconds.append(result["step_seconds"]["median"] * 1e3)
        table.row(f"cost {model}, batch {batch}", True, f"{milliseconds[0]:.2f} ms, deterministic {milliseconds[1]:.2f} ms "
                  f"({milliseconds[1] / milliseconds[0]:.2f}x)")


def check_budgets(yoke, table):
    shape = ["--model", "gpt2", "--batch", "32"]
    for recompute in ("none", "sqrt", "blocks", "budget:12GB", "budget:8GB", "budget:8GiB"):
        code, result, err = bench(yoke, *shape, "--recompute", recompute)
        peak = result.get("peak_memory_bytes", 0)
        limit = {"budget:12GB": 12e9, "budget:8GB": 8e9, "budget:8GiB": 8 * 2**30}.get(recompute)
        right = code == 0 and (limit is None or peak <= 1.05 * limit)
        table.row(recompute, right, f"peak {peak / 1e9:.2f} GB, step {result['step_seconds']['median'] * 1e3:.1f} ms"
                  if code == 0 else err.strip()[-400:])
    code, _, err = bench(yoke, *shape, "--recompute", "budget:3GB")
    hint = re.search(r"Hint: (budget:\d+MB)", err)
    table.row("budget:3GB is refused", code == 2 and hint is not None, err.strip().splitlines()[-1][:300])
    if hint:
        code, result, err = bench(yoke, *shape, "--recompute", hint[1])
        limit = int(re.search(r"\d+", hint[1])[0]) * 1e6
        peak = result.get("peak_memory_bytes", 0)
        table.row(f"{hint[1]} is enough", code == 0 and peak <= 1.05 * limit,
                  f"peak {peak / 1e9:.2f} GB" if code == 0 else err.strip()[-400:])


def check_memory(yoke, table):
    for what, much in (("gpt2", 8192), ("resnet50", 4096)):
        words = ["--model", what]
        code, _, err = bench(yoke, *words, "--batch", str(much))
        line = err.strip().splitlines()[-1]
        batch = re.search(r"data.batch_size = (\d+) should fit", line)
        table.row(f"{what}, batch {much}", code == 2 and batch is not None, line[:600])
        if batch:
            code, result, err = bench(yoke, *words, "--batch", batch[1], steps=2)
            table.row(f"{what}, batch {batch[1]}", code == 0,
                      f"peak {result['peak_memory_bytes'] / 1e9:.1f} GB" if code == 0 else err.strip()[-400:])
    with tempfile.TemporaryDirectory() as folder:
        code, _, err = run(train(yoke, GPT2 + SMALL + ["--data.batch_size", "4096", "--data.samples", "8192", "--train.precision",
                                                       "bf16"], folder))
        line = err.strip().splitlines()[-1]
        table.row("train gpt2, batch 4096", code == 2 and "in step 1" in line, line[:600])


def check_offload(yoke, table):
    recipe = ["configs/gpt2_124m.toml", "--model.size", "774m", "--nproc", "2", "--train.precision", "bf16", "--no-train.evaluate",
              "--data.batch_size", "1", "--data.samples", "64", "--no-out.report", "--checkpoint.every_steps", "0"]
    for recompute in ("none", "blocks"):
        peaks, losses = [], []
        for more in ([], ["--parallel.zero", "3"], ["--parallel.zero", "3", "--parallel.offload", "all"]):
            with tempfile.TemporaryDirectory() as folder:
                code, out, err = run([yoke, "train", *recipe, "--device", "cuda", "--steps", "6", "--out.dir", folder, "--json",
                                      "--train.recompute", recompute, *more])
            if code != 0:
                return table.row(f"774M, {' '.join(more)}", False, err.strip()[-500:])
            summary = json.loads(out)
            peaks.append(max(summary["peak_memory_bytes"]) / 1e9)
            losses.append(summary["final_loss"])
        right = peaks[2] <= 0.4 * peaks[0] and max(losses) - min(losses) < 0.02 * losses[0]
        table.row(f"774M on two ranks, recompute {recompute}", right,
                  f"peak {peaks[0]:.2f} GB, zero 3 {peaks[1]:.2f}, offload {peaks[2]:.2f} ({peaks[2] / peaks[0]:.0%}); "
                  f"losses {', '.join(f'{loss:.4f}' for loss in losses)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("yoke")
    parser.add_argument("--only", default="bits,replicas,cost,budget,memory,offload")
    arguments = parser.parse_args()
    table = Table()
    checks = {"bits": check_bits, "replicas": check_replicas, "cost": check_cost, "budget": check_budgets, "memory": check_memory,
              "offload": check_offload}
    for name in arguments.only.split(","):
        started = time.monotonic()
        checks[name](arguments.yoke, table)
        print(f"-- {name}: {time.monotonic() - started:.0f} s", flush=True)
    sys.exit(f"{table.wrong} wrong" if table.wrong else 0)


if __name__ == "__main__":
    main()
