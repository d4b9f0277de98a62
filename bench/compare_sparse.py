#!/usr/bin/env python3
"""Pushes and pulls of sorted keys, ours and ps-lite's in turns: one server, one worker, one request in flight.

    bench/compare_sparse.py OURS PS_LITE [--backend shm] [--keys 1,100,10000,1000000] [--rounds 3]

OURS is bench/sparse_tables.cpp, PS_LITE is bench/sparse_ps_lite.cc, each built as its first lines say (ps-lite with its
ZeroMQ van: c++ -O3 -Ips-lite/include bench/sparse_ps_lite.cc libps.a -lzmq -lpthread). Prints medians over the rounds
in microseconds, with ps-lite's divided by ours.
"""
import argparse
import os
import socket
import statistics
import subprocess


def rows(text):
    return [tuple(map(float, line.split())) for line in text.splitlines() if len(line.split()) == 3]


def run_ours(program, backend, filters, keys):
    return rows(subprocess.run([program, backend, filters, *keys], capture_output=True, text=True, timeout=300, check=True).stdout)


def run_ps_lite(program, keys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": str(port),
              "DMLC_NODE_HOST": "127.0.0.1"}
    started = [subprocess.Popen([program, *keys], env={**common, "DMLC_ROLE": role}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
               for role in ("scheduler", "server", "worker")]
    try:
        text = started[2].communicate(timeout=300)[0]
        for process in started:
            process.wait(timeout=30)
        return rows(text)
    finally:
        for process in started:
            process.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ours")
    parser.add_argument("ps_lite")
    parser.add_argument("--backend", default="shm", choices=["shm", "tcp"])
    parser.add_argument("--keys", default="1,100,10000,1000000")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    keys = options.keys.split(",")
    runs = {"key cache": [], "keys sent": [], "ps-lite": []}
    for _ in range(options.rounds):
        runs["key cache"].append(run_ours(options.ours, options.backend, "cache", keys))
        runs["keys sent"].append(run_ours(options.ours, options.backend, "keys", keys))
        runs["ps-lite"].append(run_ps_lite(options.ps_lite, keys))
    for index, count in enumerate(keys):
        median = {name: [statistics.median(run[index][column] for run in all_runs) for column in (1, 2)] for name, all_runs in runs.items()}
        for name in ("key cache", "keys sent"):
            ratios = [theirs / ours for theirs, ours in zip(median["ps-lite"], median[name])]
            print(f"{options.backend} {count:>8} keys, {name}: push {median[name][0]:.1f} us ({ratios[0]:.2f}x), pull {median[name][1]:.1f} us "
                  f"({ratios[1]:.2f}x); ps-lite {median['ps-lite'][0]:.1f}, {median['ps-lite'][1]:.1f}", flush=True)


if __name__ == "__main__":
    main()
