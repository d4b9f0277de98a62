#!/usr/bin/env python3
"""Ours beside ps-lite, in turns: one server and one worker, medians over the rounds.

    make build && bench/build_ps_lite
    bench/compare_ps_lite.py [--backend shm] [--keys 1,100,10000,1000000] [--rounds 3] [--only same,varied,load,dense]

same, varied  a push or a pull of n sorted keys with a float each, one request in flight: always the same list, or four
              lists in turns that share half of their keys. Microseconds, and ps-lite's divided by ours
load          pushes and pulls in turns, eight in flight: keys per second of the server's CPU time, ours divided by
              ps-lite's
dense         a push and a pull of 16 MiB: GB/s, both directions, ours divided by ps-lite's
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS, THEIRS = ROOT / ".deps/ps-lite/ours", ROOT / ".deps/ps-lite/theirs"
DENSE = 16 << 20


def rows(text):
    return [line.split() for line in text.splitlines() if line and (line[0].isdigit() or line.startswith("CPU"))]


def run_ours(*words):
    return rows(subprocess.run([OURS, *words], capture_output=True, text=True, timeout=300, check=True).stdout)


def run_theirs(*words):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port),
              "DMLC_NODE_HOST": "127.0.0.1"}
    started = [subprocess.Popen([THEIRS, *words], env={**common, "DMLC_ROLE": role}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
               for role in ("scheduler", "server", "worker")]
    try:
        worker = started[2].communicate(timeout=300)[0]
        server = started[1].communicate(timeout=30)[0]
        started[0].wait(timeout=30)
        return rows(worker) + rows(server)
    finally:
        for process in started:
            process.kill()


def median(runs, row, column):
    return statistics.median(float(run[row][column]) for run in runs)


def compare_requests(lists, options):
    keys = options.keys.split(",")
    runs = {"key cache": [], "keys sent": [], "ps-lite": []}
    for _ in range(options.rounds):
        runs["key cache"].append(run_ours(options.backend, "cache", lists, *keys))
        runs["keys sent"].append(run_ours(options.backend, "keys", lists, *keys))
        runs["ps-lite"].append(run_theirs(lists, *keys))
    for row, count in enumerate(keys):
        theirs = [median(runs["ps-lite"], row, column) for column in (1, 2)]
        for name in ("key cache", "keys sent"):
            ours = [median(runs[name], row, column) for column in (1, 2)]
            print(f"{options.backend} {lists:6} {count:>8} keys, {name}: push {ours[0]:.1f} us ({theirs[0] / ours[0]:.2f}x), "
                  f"pull {ours[1]:.1f} us ({theirs[1] / ours[1]:.2f}x); ps-lite {theirs[0]:.1f}, {theirs[1]:.1f}", flush=True)


def compare_load(options, count="10000"):
    def rate(run):
        return float(run[0][0]) / float(run[1][1])

    rates = {"key cache": [], "keys sent": [], "ps-lite": []}
    for _ in range(options.rounds):
        rates["key cache"].append(rate(run_ours(options.backend, "cache", "load", count)))
        rates["keys sent"].append(rate(run_ours(options.backend, "keys", "load", count)))
        rates["ps-lite"].append(rate(run_theirs("load", count)))
    theirs = statistics.median(rates["ps-lite"])
    for name in ("key cache", "keys sent"):
        ours = statistics.median(rates[name])
        print(f"{options.backend} load   {count:>8} keys, {name}: {ours / 1e6:.1f} million keys/s per server core ({ours / theirs:.2f}x); ps-lite {theirs / 1e6:.1f}", flush=True)


def compare_dense(options):
    ours, theirs = [], []
    command = [ROOT / "build/yoke", "bench", "ps", "--throughput", "--servers", "1", "--workers", "1", "--bytes", str(DENSE), "--backend", options.backend, "--json"]
    for _ in range(options.rounds):
        text = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout
        ours.append(json.loads(text)["results"][0]["bandwidth"] / 1e9)
        _, push, pull = map(float, run_theirs("dense", str(DENSE))[0])
        theirs.append(2 * DENSE / (push + pull) / 1e3)
    a, b = statistics.median(ours), statistics.median(theirs)
    print(f"{options.backend} dense 16 MiB: {a:.2f} GB/s ({a / b:.2f}x); ps-lite {b:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="shm", choices=["shm", "tcp"])
    parser.add_argument("--keys", default="1,10,100,1000,10000,100000,1000000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="same,varied,load,dense")
    options = parser.parse_args()
    for what in options.only.split(","):
        if what in ("same", "varied"):
            compare_requests(what, options)
        elif what == "load":
            compare_load(options)
        elif what == "dense":
            compare_dense(options)
        else:
            parser.error(f"unknown comparison {what}")


if __name__ == "__main__":
    main()
