#!/usr/bin/env python3
"""Every way to train on several ranks, on GPUs: tests/gpu/strategies.py build-cuda/yoke [--json FILE]

Trains a small GPT-2 under each strategy, two ranks or more (they may share one GPU), and compares the loss on the test
data with that of one rank on the same global batches. Not run by ctest: it needs a GPU and a build with -DYOKE_CUDA=ON.
Exit code 0 when all agree. --jobs 4 runs several at once: faster, and step times mean nothing.
"""
import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
import tempfile

RECIPE = ["configs/gpt2_tiny.toml", "--device", "cuda", "--data.name", "synthetic", "--model.layers", "4", "--steps", "30"]
GLOBAL_BATCH = 32
LIMIT = 120  # seconds, of a run that takes a few

PIPELINES = ["naive", "gpipe", "1f1b", "interleaved", "zb-h1", "pipedream", "2bw"]
DELAYED = {"pipedream", "2bw"}  # other mathematics than one device: they only have to learn


def strategies():
    """name, options, replicas of the model, largest relative difference of the test loss (None: it learns) [, ranks]."""
    exact, low = 1e-4, 2e-2
    tensor, staged = ["--parallel.tensor", "2"], ["--parallel.pipeline", "2"]
    for precision, tolerance in (("fp32", exact), ("bf16", low), ("fp16", low)):
        p = ["--train.precision", precision]
        yield f"ddp {precision}", p, 2, tolerance
        for zero in ("1", "2", "3"):
            yield f"zero {zero} {precision}", p + ["--parallel.zero", zero], 2, tolerance
        yield f"tensor {precision}", p + tensor, 1, tolerance
        yield f"sequence {precision}", p + tensor + ["--parallel.sequence"], 1, tolerance
        yield f"zero 3, offload all {precision}", p + ["--parallel.zero", "3", "--parallel.offload", "all"], 2, tolerance
        yield f"3D, zero 1 {precision}", p + tensor + staged + ["--parallel.zero", "1"], 2, tolerance, 8
    yield "zero 3, offload optimizer", ["--parallel.zero", "3", "--parallel.offload", "optimizer"], 2, exact
    yield "tensor x data", tensor, 2, exact, 4
    yield "tensor x zero 3", tensor + ["--parallel.zero", "3"], 2, exact, 4
    yield "tensor x pipeline", tensor + staged, 1, exact, 4
    yield "pipeline x zero 2", staged + ["--parallel.zero", "2"], 2, exact, 4
    yield "pipeline x zero 3", staged + ["--parallel.zero", "3"], 2, exact, 4
    yield "pipeline x zero 3 bf16", staged + ["--parallel.zero", "3", "--train.precision", "bf16"], 2, low, 4
    yield "3D, zero 3", tensor + staged + ["--parallel.zero", "3"], 2, exact, 8
    yield "3D, sequence", tensor + staged + ["--parallel.sequence"], 2, exact, 8
    yield "ddp, powersgd", ["--ddp.hook", "powersgd:4"], 2, None
    yield "ddp, int8", ["--ddp.hook", "int8"], 2, low
    yield "ddp, sign", ["--ddp.hook", "sign"], 2, None
    yield "ddp, topk", ["--ddp.hook", "topk:0.1"], 2, None
    for schedule in PIPELINES:
        options = ["--parallel.pipeline", "2", "--pipeline.schedule", schedule]
        yield f"pipeline {schedule}", options, 1, None if schedule in DELAYED else exact
        if schedule not in DELAYED:
            yield f"pipeline {schedule} bf16", options + ["--train.precision", "bf16"], 1, low
    yield "pipeline 1f1b fp16", ["--parallel.pipeline", "2", "--train.precision", "fp16"], 1, low
    yield "pipeline 1f1b, recompute", ["--parallel.pipeline", "2", "--train.recompute", "blocks"], 1, exact
    yield "ps sync", ["--parallel.sync", "ps"], 2, exact
    yield "ps sync bf16", ["--parallel.sync", "ps", "--train.precision", "bf16"], 2, low
    yield "ps async", ["--parallel.sync", "ps", "--ps.policy", "async"], 2, None
    # Every update cancels a backward pass that is under way.
    for rule in ("k_sync", "k_batch_sync"):
        yield f"ps {rule}", ["--parallel.sync", "ps", "--ps.policy", rule, "--ps.k", "1"], 2, None
    yield "ps k_batch_async", ["--parallel.sync", "ps", "--ps.policy", "k_batch_async", "--ps.k", "2"], 2, None


def train(yoke, options, ranks, batch):
    with tempfile.TemporaryDirectory() as folder:
        command = [yoke, "train", *RECIPE, "--nproc", str(ranks), "--data.batch_size", str(batch), "--out.dir", folder, "--resume", "never",
                   "--json", "--quiet", *options]
        # A session of its own, so that a hang ends with all of its ranks.
        job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            out, err = job.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            return None, f"no end after {LIMIT} s: {job.communicate()[1][-900:]}"
    if job.returncode != 0:
        return None, f"exit code {job.returncode}: {err if len(err) < 2000 else err[:1200] + chr(10) + '…' + err[-700:]}"
    return json.loads(out), ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("yoke")
    parser.add_argument("--json", help="leave all summaries here")
    parser.add_argument("--only", default="", help="strategies whose name has one of these in it, with commas between")
    parser.add_argument("--jobs", type=int, default=1, help="strategies tried at once")
    arguments = parser.parse_args()
    one, why = train(arguments.yoke, [], 1, GLOBAL_BATCH)
    if one is None:
        sys.exit(f"one rank: {why}")
    start = train(arguments.yoke, ["--train.lr", "0"], 1, GLOBAL_BATCH)[0]["eval_loss"]
    print(f"{'one rank':28s} {one['eval_loss']:.5f} (at the start {start:.5f})", flush=True)
    failed, all_summaries = 0, {"one rank": one}
    chosen = [row for row in strategies() if any(word in row[0] for word in arguments.only.split(","))]
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        runs = [pool.submit(train, arguments.yoke, row[1], row[4] if len(row) > 4 else 2, GLOBAL_BATCH // row[2])
                for row in chosen]
        for (name, _, _, tolerance, *_), run in zip(chosen, runs):
            summary, why = run.result()
            all_summaries[name] = summary
            if summary is None:
                verdict, right = why, False
            else:
                loss = summary["eval_loss"]
                apart = abs(loss - one["eval_loss"]) / one["eval_loss"]
                right = apart <= tolerance if tolerance else loss < start - 0.3 * (start - one["eval_loss"])
                verdict = (f"{loss:.5f} {'ok' if right else 'WRONG'}, apart {apart:.1e}, "
                           f"step {1e3 * summary['step_seconds']['median']:.2f} ms")
            failed += not right
            print(f"{name:28s} {verdict}", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(all_summaries, file, indent=1)
    sys.exit(f"{failed} wrong" if failed else 0)


if __name__ == "__main__":
    main()
