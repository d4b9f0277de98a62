#!/usr/bin/env python3
"""How much training slows down while a parameter server joins, and for how long; or a worker (--worker); or while a server leaves (--leave).

Starts a job, lets a server join it (`yoke ps join`), and reads the time of every update from updates.jsonl. Prints the
rate of updates before, the lowest rate in a window from then on, the share that is lost, the same share without a server
that joins (of the time before; what else runs on the machine causes it), how long the join and the moves take, the share
that is lost while they last, and how long after its start the rate is back for good. With --worker the rates are those of
gradients, which a worker more raises.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def times_of(folder):
    """Of each update, as often as it has gradients."""
    lines = (folder / "updates.jsonl").read_text().splitlines()
    updates = [json.loads(line) for line in lines if line.endswith("}")]
    return [update["time"] for update in updates for _ in update.get("batches", [0])]


def rate(times, begin, end):
    return sum(begin <= one < end for one in times) / (end - begin)


def clock_of(folder):
    """The clock of this program minus that of the updates, which are written some at a time."""
    known = len(times_of(folder))
    while len(times := times_of(folder)) == known:
        time.sleep(0.002)
    return time.monotonic() - times[-1]


def lowest_rate(times, begin, end, window):
    starts = [begin + i * window / 4 for i in range(max(1, int(4 * (end - begin) / window) - 3))]
    return min(rate(times, start, start + window) for start in starts)


def await_words(file, words, times, process, seconds=120):
    limit = time.monotonic() + seconds
    while pathlib.Path(file).read_text().count(words) < times:
        if time.monotonic() > limit or process.poll() is not None:
            raise SystemExit(f"'{words}' was not said: {pathlib.Path(file).read_text()}")
        time.sleep(0.01)


def change(arguments, folder, log, job):
    """Lets a server or a worker join, or a server leave, until all that belongs to it is done. The process that joins, if one does."""
    name = [arguments.yoke, "ps"]
    if arguments.leave:
        subprocess.run([*name, "leave", str(folder), str(arguments.servers - 1)], stdout=log, stderr=log, check=True)
        return None
    joiner = subprocess.Popen([*name, "join", str(folder), *(["--worker"] if arguments.worker else [])], stdout=log, stderr=log)
    if arguments.worker:
        await_words(log.name, f"worker {arguments.workers} joined at version", 1, job)
    else:
        await_words(log.name, "serves home", arguments.servers * 4 // (arguments.servers + 1), job)
    return joiner


def measure(arguments, folder):
    places = ["--ps.max_workers", arguments.workers + 1] if arguments.worker else ["--ps.max_servers", arguments.servers + 1]
    words = [arguments.yoke, "train", ROOT / "configs/mlp_tiny.toml", "--nproc", arguments.workers, "--parallel.sync", "ps", "--ps.servers", arguments.servers,
             *places, "--ps.replicas", arguments.replicas, "--ps.log_updates", "--model.sizes", arguments.sizes,
             "--train.threads", 1, "--no-train.evaluate", "--steps", 10**7, "--out.dir", folder, "-q"]
    joiner = None
    with open(f"{folder}.log", "w") as log:
        job = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        try:
            while not (folder / "updates.jsonl").exists() or len(times_of(folder)) < 50:
                assert job.poll() is None, pathlib.Path(log.name).read_text()
                time.sleep(0.05)
            time.sleep(arguments.seconds)
            clock = clock_of(folder)
            joined_at = time.monotonic() - clock
            joiner = change(arguments, folder, log, job)
            moved_at = time.monotonic() - clock
            while (times := times_of(folder))[-1] < moved_at + arguments.seconds:
                assert job.poll() is None, pathlib.Path(log.name).read_text()
                time.sleep(0.05)
        finally:
            job.terminate()
            job.wait(timeout=60)
        if joiner:
            joiner.wait(timeout=60)
    before = rate(times, joined_at - arguments.seconds, joined_at)
    after = rate(times, moved_at, times[-1])
    window = arguments.window
    starts = [joined_at + i * window / 4 for i in range(int(4 * (times[-1] - joined_at) / window) - 3)]
    rates = [(start, rate(times, start, start + window)) for start in starts]
    lowest = min(one for _, one in rates)
    slow = [start + window for start, one in rates if one < (1 - arguments.dip) * before]
    gaps = [(a, b - a) for a, b in zip(times, times[1:])]
    return {"before": before, "lowest": lowest, "after": after, "dip": 1 - lowest / before,
            "dip_without": 1 - lowest_rate(times, joined_at - arguments.seconds, joined_at, window) / before, "moving_s": moved_at - joined_at,
            "dip_moving": 1 - rate(times, joined_at, moved_at) / before, "below_s": max(slow, default=joined_at) - joined_at,
            "longest_gap_s": max(gap for at, gap in gaps if joined_at <= at <= moved_at),
            "gap_without_s": max(gap for at, gap in gaps if joined_at - arguments.seconds <= at < joined_at)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yoke", default=str(ROOT / "build/yoke"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=0)
    changes = parser.add_mutually_exclusive_group()
    changes.add_argument("--worker", action="store_true", help="a worker joins instead of a server")
    changes.add_argument("--leave", action="store_true", help="the last server leaves")
    parser.add_argument("--sizes", default="784,512,512,10", help="model.sizes of an MLP")
    parser.add_argument("--seconds", type=float, default=4, help="of training before and after")
    parser.add_argument("--window", type=float, default=0.5, help="seconds over which a rate is taken")
    parser.add_argument("--dip", type=float, default=0.2, help="a rate this much below is slow")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = [measure(arguments, pathlib.Path(scratch) / f"run{i}") for i in range(arguments.runs)]
    for key in results[0]:
        print(f"{key:14} {statistics.median(result[key] for result in results):8.3f}   {[round(result[key], 3) for result in results]}")


if __name__ == "__main__":
    main()
