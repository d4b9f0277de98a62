#!/usr/bin/env python3
"""Kills parameter servers that have copies, and looks at what becomes of the training.

Each run is a `yoke train` of which one random server, at a random moment, gets `kill -9` or SIGSTOP (every second one of
each, or --signal). Under `sync` the parameters at the end must have the hash of an undisturbed run; all runs must end
with all their updates. Prints JSON: the number of runs, those that were bad with the reason, and the longest interval
between two updates of a run, in seconds: the median and the longest of all runs, for each signal.

    bench/ps_kills.py --kills 100 --rule sync
    bench/ps_kills.py --kills 40 --rule all --sparse --minutes 10
"""
import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RULES = ["sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async", "bounded_delay", "ssp"]
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
LONGEST = 180  # seconds of a run


def words_of(arguments, rule, folder):
    config = ROOT / ("configs/sparse_lr.toml" if arguments.sparse else "configs/mlp_tiny.toml")
    words = [arguments.yoke, "train", config, "--nproc", arguments.workers, "--parallel.sync", "ps", "--ps.servers", arguments.servers, "--ps.replicas",
             arguments.replicas, "--ps.policy", rule, "--ps.k", arguments.workers, "--ps.max_delay", 1, "--ps.log_updates", "--train.threads", 1,
             "--no-train.evaluate", "--steps", arguments.steps, "--slowdown.law", f"exp:{arguments.pause}", "--out.dir", folder, "--json"]
    words += ["--ps.sparse", "on", "--train.optimizer", "adagrad"] if arguments.sparse else ["--ps.range_bytes", "1KB", "--train.momentum", 0.9]
    return [str(word) for word in words]


def ranks_of(launcher):
    """Process ids of the ranks of a job."""
    found = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) != launcher:
                continue
            for one in (entry / "environ").read_bytes().split(b"\0"):
                if one.startswith(b"YOKE_RANK="):
                    found[int(one.split(b"=")[1])] = int(entry.name)
        except (OSError, ValueError):
            pass
    return found


def updates_of(folder):
    """The times of the updates that are written; the last line may lack its end."""
    file = folder / "updates.jsonl"
    return [json.loads(line)["time"] for line in file.read_text().splitlines() if line.endswith("}")] if file.exists() else []


def finish(job, folder, log):
    """The result of a job, or why there is none."""
    try:
        out, _ = job.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return None, f"did not end within {LONGEST} s"
    if job.returncode != 0:
        return None, f"ended with {job.returncode}: {log.read_text()[-600:]}"
    return json.loads(out), ""


def run(arguments, rule, folder, hit=None):
    """One job; `hit`: server, signal and the update at which it gets it."""
    log = folder.with_suffix(".log")
    with open(log, "w") as err:
        job = subprocess.Popen(words_of(arguments, rule, folder), stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True)
    try:
        if hit is not None:
            server, number, at = hit
            limit = time.monotonic() + LONGEST
            while len(updates_of(folder)) < at and job.poll() is None and time.monotonic() < limit:
                time.sleep(0.003)
            victim = ranks_of(job.pid).get(arguments.workers + server)
            if victim is None:
                return {"why": f"server {server} was not found at update {at}: {log.read_text()[-600:]}"}
            os.kill(victim, number)
        result, why = finish(job, folder, log)
        if why:
            return {"why": why}
        times = updates_of(folder)
        lost = json.loads((folder / "ps.json").read_text())["servers_lost"]
        return {"why": "", "hash": result["parameter_hash"], "steps": result["steps"], "lost": lost, "gap": max((b - a for a, b in zip(times, times[1:])), default=0)}
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait(30)


def why_bad(seen, wanted, arguments):
    if seen["why"]:
        return seen["why"]
    if seen["steps"] != arguments.steps or seen["lost"] != 1:
        return f"{seen['steps']} updates, {seen['lost']} servers lost"
    return "" if wanted in (None, seen["hash"]) else f"hash {seen['hash']} in place of {wanted}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default=str(ROOT / "build/yoke"))
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--rule", default="sync", choices=[*RULES, "all"])
    parser.add_argument("--signal", default="both", choices=[*SIGNALS, "both"])
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pause", default="2ms", help="mean of what a worker waits in each minibatch")
    parser.add_argument("--sparse", action="store_true", help="sparse logistic regression in tables")
    parser.add_argument("--minutes", type=float, default=60, help="no run begins after that")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draws = random.Random(arguments.seed)
    end = time.monotonic() + 60 * arguments.minutes
    kinds = list(SIGNALS) if arguments.signal == "both" else [arguments.signal]
    gaps = {kind: [] for kind in kinds}
    bad, done, equal = [], 0, 0
    with tempfile.TemporaryDirectory() as scratch:
        calm = run(arguments, "sync", pathlib.Path(scratch) / "calm")
        if calm["why"]:
            raise SystemExit(f"the undisturbed run {calm['why']}")
        while done < arguments.kills and time.monotonic() < end:
            rule = arguments.rule if arguments.rule != "all" else RULES[done // len(kinds) % len(RULES)]
            kind = kinds[done % len(kinds)]
            hit = draws.randrange(arguments.servers), SIGNALS[kind], draws.randrange(5, arguments.steps * 3 // 4)
            seen = run(arguments, rule, pathlib.Path(scratch) / str(done), hit)
            why = why_bad(seen, calm["hash"] if rule == "sync" else None, arguments)
            if why:
                bad.append({"rule": rule, "server": hit[0], "signal": kind, "at": hit[2], "why": why})
                print(bad[-1], file=sys.stderr, flush=True)
            else:
                gaps[kind].append(seen["gap"])
                equal += rule == "sync"
            done += 1
    shown = {kind: {"runs": len(all_of), "median_s": round(statistics.median(all_of), 3), "longest_s": round(max(all_of), 3)} for kind, all_of in gaps.items() if all_of}
    print(json.dumps({"runs": done, "bad": bad, "gap_calm_s": round(calm["gap"], 3), "gap": shown, "sync_with_the_same_hash": equal}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
