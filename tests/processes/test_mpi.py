"""The MPI backend under mpirun of each MPI that is installed: every operation, disagreement, deadlines, news of failures."""
import os
import re
import shutil
import subprocess

import pytest
from conftest import YOKE

PROGRAM = YOKE.parent / "yoke_mpi_test"
RANKS = 3
LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np"],
    "mpich": ["mpirun.mpich", "-np"],
}


@pytest.fixture(params=LAUNCHERS)
def run(request):
    """run(case): code and output of all ranks."""
    kind = request.param
    launcher = LAUNCHERS[kind]
    if not shutil.which(launcher[0]):
        pytest.skip(f"{launcher[0]} is not installed")
    if not PROGRAM.exists() or not (YOKE.parent / f"libyoke_mpi_{kind}.so").exists():
        pytest.skip(f"this build has no module for {kind}")

    def start(case, ranks=RANKS):
        # MPI's shared memory and sockets only: no network that a test machine may not have.
        environment = {**os.environ, "OMPI_MCA_btl": "self,vader,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
        process = subprocess.run([*launcher, str(ranks), str(PROGRAM), kind, case], capture_output=True, text=True,
                                 env=environment, timeout=240)
        return process.returncode, process.stdout, process.stdout + process.stderr

    return start


def lines(out, pattern):
    return re.findall(pattern, out, re.M)


@pytest.mark.parametrize("case", ["operations", "same_bits", "large_halves", "split"])
def test_results_are_right(run, case):
    code, out, everything = run(case)
    assert code == 0, everything
    assert len(lines(out, r"^rank \d: ok")) == RANKS, everything


def test_a_world_of_one(run):
    code, out, everything = run("operations", ranks=1)
    assert code == 0 and "rank 0: ok" in out, everything


def test_counters_equal_the_ring_formula(run):
    code, out, everything = run("counters")
    assert code == 0, everything
    # 12 floats over 3 ranks: 2 (N-1)/N of 48 bytes.
    assert lines(out, r"operations 1 sent 64 received 64 messages 4") == ["operations 1 sent 64 received 64 messages 4"] * RANKS


def test_every_rank_gets_the_same_error_with_both_descriptions(run):
    _, out, everything = run("mismatch")
    told = lines(out, r"mismatch: (.*)$")
    assert len(told) == RANKS, everything
    assert len(set(told)) == 1, told
    assert "bucket 3" in told[0] and "weights" in told[0] and "rank 2" in told[0], told


def test_a_message_of_another_size_is_refused(run):
    _, out, everything = run("receive")
    told = lines(out, r"rank 1: mismatch: (.*)$")
    assert len(told) == 1 and "8" in told[0] and "9" in told[0], everything


def test_a_rank_that_does_not_come_is_an_error_at_the_deadline(run):
    _, out, everything = run("deadline")
    told = lines(out, r"deadline: (.*)$")
    assert len(told) >= 1, everything
    assert "lonely" in told[0] and "after 0.5 s" in told[0], told


def test_news_of_a_failure_ends_the_wait(run):
    _, out, everything = run("failure")
    told = lines(out, r"failure at once: (.*)$")
    assert len(told) >= 1, everything
    assert "rank 2 was killed" in told[0], told


def test_without_mpirun_the_error_says_so():
    if not PROGRAM.exists() or not (YOKE.parent / "libyoke_mpi_openmpi.so").exists():
        pytest.skip("this build has no module for openmpi")
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    process = subprocess.run([str(PROGRAM), "openmpi", "operations"], capture_output=True, text=True, env=environment,
                             timeout=120)
    assert process.returncode == 1
    assert "rank 0 of 1" in process.stdout and "mpirun" in process.stdout, process.stdout + process.stderr
