#!/usr/bin/env python3
"""What the protection of tcp connections costs: none, integrity (the default) and encryption in turns, in one run.

none        --insecure: a checksum over each header
integrity   a MAC over each header, CRC32C over each payload, sender and receiver
encrypted   --encrypt: AES-128-GCM over each payload

Fingerprints of operations are part of all three; `bench/fingerprint_cost.cpp` measures them apart. Prints medians and ratios, JSON on stdout.

With --cpu it compares the processor time of both ranks instead of the time that passes (sizes from 1M on): on cores that others use too that
is what can be measured. Of a long run less that of a short one, so that starting up does not count.

  bench/protection_cost.py --bytes 1K,1M,64M --rounds 7
  bench/protection_cost.py --bytes 1M,16M --rounds 7 --cpu
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = os.environ.get("YOKE_BIN", str(ROOT / "build/yoke"))
LEVELS = {"none": ["--insecure"], "integrity": [], "encrypted": ["--encrypt"]}


def measure(flags, ranks, sizes):
    words = [YOKE, "run", "-q", "--nproc", str(ranks), *flags, YOKE, "bench", "collectives", "--backend", "tcp", "--bytes", sizes,
             "--no-check", "--json", "-q"]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    text = "\n".join(line.split("] ", 1)[1] for line in out.splitlines() if line.startswith("[rank 0"))
    return {row["bytes"]: row["seconds"]["median"] for row in json.loads(text)["results"]}


def processor_seconds(flags, ranks, size, samples):
    words = [YOKE, "run", "-q", "--nproc", str(ranks), *flags, YOKE, "bench", "collectives", "--backend", "tcp", "--bytes", size,
             "--iterations", str(samples), "--no-check", "-q"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_processor(flags, ranks, sizes):
    times = {}
    for size in sizes.split(","):
        few, many = (200, 1200) if size == "1M" else (10, 50)
        times[size] = (processor_seconds(flags, ranks, size, many) - processor_seconds(flags, ranks, size, few)) / (many - few)
    return times


def fingerprint_nanoseconds():
    """Of one operation; shared memory needs no other protection."""
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "fingerprint_cost")
        subprocess.run(["c++", "-std=c++20", "-O3", f"-I{ROOT}/src", f"-I{ROOT}/.deps/include", "-o", program,
                        str(ROOT / "bench/fingerprint_cost.cpp"), str(pathlib.Path(YOKE).parent / "libyoke_core.a"), "-lfmt", "-lcrypto",
                        "-lz"], check=True)
        return float(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def shared_memory_seconds(ranks):
    words = [YOKE, "bench", "collectives", "--nproc", str(ranks), "--backend", "shm", "--bytes", "1K", "--no-check", "--json", "-q"]
    return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["results"][0]["seconds"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", default="1K,64K,1M,16M,64M")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="processor time instead of time that passes")
    arguments = parser.parse_args()
    one_round = measure_processor if arguments.cpu else measure
    times = {level: [] for level in LEVELS}
    for _ in range(arguments.rounds):
        for level, flags in LEVELS.items():
            times[level].append(one_round(flags, arguments.ranks, arguments.bytes))
    rows = []
    print(f"{'bytes':>10}" + "".join(f"{level + ', us':>16}" for level in LEVELS) + f"{'integrity':>12}{'encryption':>12}", file=sys.stderr)
    for size in times["none"][0]:
        middle = {level: statistics.median(run[size] for run in runs) for level, runs in times.items()}
        # Of each round by itself: what else the machine does changes from round to round.
        cost = {level: statistics.median(run[size] / none[size] - 1 for run, none in zip(times[level], times["none"]))
                for level in ("integrity", "encrypted")}
        rows.append({"bytes": size, "seconds": middle, "cost": cost})
        print(f"{size:>10}" + "".join(f"{middle[level] * 1e6:>16.1f}" for level in LEVELS)
              + f"{cost['integrity'] * 100:>11.1f}%{cost['encrypted'] * 100:>11.1f}%", file=sys.stderr)
    one = fingerprint_nanoseconds()
    small = statistics.median(shared_memory_seconds(arguments.ranks) for _ in range(arguments.rounds))
    print(f"\nfingerprint: {one:.0f} ns an operation, {one / small / 1e7:.2f} % of a 1 KB all_reduce over shm ({small * 1e6:.2f} us)",
          file=sys.stderr)
    print(json.dumps({"tcp": rows, "fingerprint_ns": one, "shm_1k_seconds": small}))


if __name__ == "__main__":
    main()
