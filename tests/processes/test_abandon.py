"""A rank that cannot go on ends at once, whatever it has in flight, and so do the others: on every backend."""
import re
import shutil
import subprocess
import time

import pytest
from conftest import ROOT, YOKE
from launching import clean_environment

PROGRAM = YOKE.parent / "yoke_rank_program"
TIMEOUT = 200  # seconds an operation may take: nobody waits so long
SOON = 60      # of a machine under load; without abandon() it is TIMEOUT
MPIRUN = {"openmpi": ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", "3"], "mpich": ["mpirun.mpich", "-np", "3"]}


def start(backend, fault):
    launcher = MPIRUN.get(backend) or [YOKE, "run", "--nproc", "3"]
    if not shutil.which(str(launcher[0])):
        pytest.skip(f"{launcher[0]} is not installed")
    words = [*launcher, PROGRAM, "mpi" if backend in MPIRUN else backend, 1000000, 4000, fault, 1, 5, TIMEOUT]
    begin = time.monotonic()
    # mpirun.mpich tells its ranks nothing but by its own variables.
    run = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=150, env=clean_environment(), cwd=ROOT)
    return run, time.monotonic() - begin


BACKENDS = ["shm", "tcp", "hierarchical", *MPIRUN]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_with_operations_in_flight_ends_the_job_at_once(backend):
    run, seconds = start(backend, "unwind")
    assert run.returncode != 0 and seconds < SOON, run.stdout + run.stderr
    # mpirun.mpich ends all ranks with the first: what others had to say may be lost.
    assert backend == "mpich" or "a bug of the user's" in run.stderr + run.stdout


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rank_that_gives_up_fails_all_its_operations_and_tells_the_others(backend):
    run, seconds = start(backend, "abandon")
    said = run.stdout + run.stderr
    assert run.returncode != 0 and seconds < SOON, said
    told = len(re.findall(r"rank 1: .*rank 1 gave up: as it was told to", said))
    assert told == 4 or (backend == "mpich" and "rank 1 gave up: as it was told to" in said), said  # two receives, send, barrier
    # A victim that is in an operation says why; one that the launcher ended first says nothing.
    others = re.findall(r"rank [02] of 3.*", said)
    assert all("rank 1" in line for line in others), said
