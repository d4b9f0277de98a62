#!/usr/bin/env python3
"""Collectives of ours beside Gloo (from the torch wheel) and Open MPI, in one run.

Rounds alternate between the three, each in fresh processes, so that whatever else the machine does hits all of them. Prints the medians of the
rounds and the ratios (above 1: ours is faster), and JSON on stdout. Open MPI's part is bench/mpi_collectives.cpp, built here with mpicxx.

  bench/compare_collectives.py                          # all_reduce, 2 and 4 ranks, shared memory and tcp
  bench/compare_collectives.py --ranks 2 --bytes 1K,64M --backends shm --rounds 5
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = os.environ.get("YOKE_BIN", str(ROOT / "build/yoke"))
UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

GLOO = r'''
import os, sys, time, json, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
out = {}
for size in map(int, sys.argv[1].split(",")):
    x = torch.zeros(max(1, size // 4))
    repeats = 200 if size <= 1 << 16 else (30 if size <= 1 << 20 else 3)
    for _ in range(2): dist.all_reduce(x)
    samples = []
    for _ in range(5):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(repeats): dist.all_reduce(x)
        samples.append((time.perf_counter() - begin) / repeats)
    out[size] = sorted(samples)[2]
if dist.get_rank() == 0: print(json.dumps(out))
dist.destroy_process_group()
'''


def parse(size):
    return int(size[:-1]) * UNITS[size[-1]] if size[-1] in UNITS else int(size)


def ours(ranks, backend, sizes, memory="shared"):
    words = [YOKE, "bench", "collectives", "--nproc", ranks, "--backend", backend, "--bytes", ",".join(map(str, sizes)),
             "--memory", memory, "--no-check", "--json", "-q"]
    out = subprocess.run([str(w) for w in words], check=True, capture_output=True, text=True).stdout
    return {row["bytes"]: row["seconds"]["median"] for row in json.loads(out)["results"]}


def gloo(ranks, sizes, port):
    children = []
    for rank in range(ranks):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        children.append(subprocess.Popen([sys.executable, "-c", GLOO, ",".join(map(str, sizes))], env=env, text=True,
                                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    text = [child.communicate(timeout=300)[0] for child in children]
    return {int(k): v for k, v in json.loads(text[0].splitlines()[-1]).items()}


def open_mpi(program, ranks, sizes, over_tcp):
    words = [shutil.which("mpirun.openmpi") or "mpirun", "--oversubscribe", "--allow-run-as-root"]
    words += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"] if over_tcp else []
    words += ["-np", str(ranks), program, *map(str, sizes)]
    out = subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout
    return {int(a): float(b) for a, b in (line.split() for line in out.splitlines())}


def build_mpi_program(folder):
    compiler = shutil.which("mpicxx.openmpi") or shutil.which("mpicxx")
    if not compiler or not shutil.which("mpirun.openmpi"):
        print("Open MPI is not installed (apt-get install libopenmpi-dev openmpi-bin): left out", file=sys.stderr)
        return None
    program = os.path.join(folder, "mpi_collectives")
    subprocess.run([compiler, "-O2", "-o", program, str(ROOT / "bench/mpi_collectives.cpp")], check=True)
    return program


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--bytes", default="1K,64K,1M,16M,64M")
    parser.add_argument("--backends", default="shm,tcp")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sizes = [parse(size) for size in arguments.bytes.split(",")]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        mpi = build_mpi_program(folder)
        for ranks in map(int, arguments.ranks.split(",")):
            for backend in arguments.backends.split(","):
                times = {"yoke": [], "gloo": [], "mpi": []}
                for round_ in range(arguments.rounds):
                    times["yoke"].append(ours(ranks, backend, sizes))
                    times["gloo"].append(gloo(ranks, sizes, 29650 + round_))
                    if mpi:
                        times["mpi"].append(open_mpi(mpi, ranks, sizes, backend == "tcp"))
                print(f"\nall_reduce, {ranks} ranks, {backend}: median of {arguments.rounds} rounds, microseconds", file=sys.stderr)
                print(f"{'bytes':>10}{'yoke':>12}{'gloo':>12}{'Open MPI':>12}{'GB/s':>8}{'x gloo':>9}{'x MPI':>8}", file=sys.stderr)
                for size in sizes:
                    middle = {k: statistics.median(v[size] for v in runs) for k, runs in times.items() if runs}
                    row = {"ranks": ranks, "backend": backend, "bytes": size, **middle}
                    rows.append(row)
                    mpi_time = middle.get("mpi", float("nan"))
                    print(f"{size:>10}{middle['yoke'] * 1e6:>12.1f}{middle['gloo'] * 1e6:>12.1f}{mpi_time * 1e6:>12.1f}"
                          f"{size / middle['yoke'] / 1e9:>8.2f}{middle['gloo'] / middle['yoke']:>9.2f}{mpi_time / middle['yoke']:>8.2f}",
                          file=sys.stderr)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
