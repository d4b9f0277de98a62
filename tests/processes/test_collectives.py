"""Collectives between processes: every launcher, every way a rank can go wrong, hostile visitors."""
import atexit
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import pytest
from conftest import ROOT, YOKE
from ports import free_port

PROGRAM = YOKE.parent / "yoke_rank_program"
FLIGHT = tempfile.mkdtemp(prefix="yoke-flight-")
atexit.register(shutil.rmtree, FLIGHT, ignore_errors=True)
TORCHRUN = ROOT / ".deps/venv/bin/torchrun"


def clean_environment(**extra):
    keep = {k: v for k, v in os.environ.items() if not re.match(r"YOKE_|RANK|WORLD_SIZE|MASTER_|OMPI_|PMI|SLURM_|PET_", k)}
    return {**keep, "YOKE_FLIGHT_DIR": FLIGHT, **extra}


def run_job(*words, timeout=90, env=None):
    begin = time.monotonic()
    process = subprocess.run([str(YOKE), "run", *map(str, words)], capture_output=True, text=True, timeout=timeout,
                             env=env or clean_environment(), cwd=ROOT)
    process.seconds = time.monotonic() - begin
    return process


@pytest.mark.parametrize("backend", ["auto", "shm", "tcp"])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_add_up(backend, ranks):
    job = run_job("--nproc", ranks, PROGRAM, backend, 5, 100000)
    assert job.returncode == 0, job.stderr
    assert len(re.findall(r"rank \d of \d over \w+: 5 steps", job.stdout)) == ranks


def test_same_program_under_torchrun():
    job = subprocess.run([TORCHRUN, "--no-python", "--nproc-per-node", "2", "--master-port", "29713", PROGRAM, "auto", "3", "1000"],
                         capture_output=True, text=True, timeout=120, env=clean_environment())
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("over shm: 3 steps") == 2


@pytest.mark.parametrize("mpirun", ["mpirun.openmpi", "mpirun.mpich"])
def test_same_program_under_mpirun(mpirun):
    if not shutil.which(mpirun):
        pytest.skip(f"{mpirun} is not installed")
    options = ["--oversubscribe", "--allow-run-as-root"] if "openmpi" in mpirun else []
    job = subprocess.run([mpirun, *options, "-np", "3", PROGRAM, "auto", "3", "1000"], capture_output=True, text=True,
                         timeout=120, env=clean_environment())
    assert job.returncode == 0, job.stderr
    assert job.stdout.count("of 3 over shm: 3 steps") == 3


def test_same_program_under_slurm_variables():
    """Slurm itself is not here: two processes with the variables srun would set."""
    children = []
    for rank in range(2):
        env = clean_environment(SLURM_PROCID=str(rank), SLURM_STEP_ID="0", SLURM_JOB_ID=str(os.getpid()),
                                SLURM_STEP_NUM_TASKS="2", SLURM_NTASKS="2", SLURM_LOCALID=str(rank), SLURM_NODEID="0",
                                SLURM_STEP_TASKS_PER_NODE="2", SLURM_STEP_NODELIST="localhost", SLURM_JOB_NODELIST="localhost")
        children.append(subprocess.Popen([PROGRAM, "auto", "3", "1000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                         text=True, env=env))
    for child in children:
        out, err = child.communicate(timeout=90)
        assert child.returncode == 0, err
        assert "of 2 over shm: 3 steps" in out


@pytest.mark.parametrize("backend", ["shm", "tcp"])
@pytest.mark.parametrize("fault,says", [
    ("type", ["rank 1 called all_reduce", "'a' sum of fp32", "'a' sum of int32"]),
    ("shape", ["fp32 [1000]", "fp32 [100, 10]"]),
    ("size", ["fp32 [1000]", "fp32 [500]"]),
    ("op", ["all_reduce", "broadcast"]),
    ("order", ["'a' sum", "'b' sum"]),
    ("skip", ["'a' sum", "'b' sum"]),
])
def test_ranks_that_disagree_are_told_on_every_rank(backend, fault, says, tmp_path):
    job = run_job("--nproc", 3, PROGRAM, backend, 5, 4000, fault, 1, 2,
                  env=clean_environment(YOKE_FLIGHT_DIR=str(tmp_path / "flight")))
    assert job.returncode == 3, job.stdout + job.stderr
    assert "wrong sum" not in job.stderr
    for rank in range(3):
        error = [line for line in job.stderr.splitlines() if line.startswith(f"[rank {rank}] error:")]
        assert len(error) == 1, job.stderr
        for text in says:
            assert text in error[0]
    why = json.loads(subprocess.run([YOKE, "why", tmp_path / "flight", "--json"], capture_output=True, text=True, check=True).stdout)
    assert why["first_divergence"]["rank"] == 1
    assert why["first_divergence"]["sequence"] == 5


@pytest.mark.parametrize("backend", ["shm", "tcp"])
@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("size", [4000, 40_000_000])
def test_a_killed_rank_is_named(backend, step, size):
    job = run_job("--nproc", 3, PROGRAM, backend, 6, size, "kill", 2, step)
    assert job.returncode == 128 + signal.SIGKILL
    for rank in (0, 1):
        error = [line for line in job.stderr.splitlines() if line.startswith(f"[rank {rank}] error:")]
        assert len(error) == 1 and "rank 2" in error[0] and "signal 9" in error[0], job.stderr
    assert "rank 2" in job.stderr.split("[rank")[-1] or "rank 2" in job.stderr


def test_a_rank_that_leaves_early_is_named():
    job = run_job("--nproc", 3, PROGRAM, "auto", 6, 4000, "exit", 1, 2)
    assert job.returncode == 7, job.stderr
    for rank in (0, 2):
        error = [line for line in job.stderr.splitlines() if line.startswith(f"[rank {rank}] error:")]
        assert len(error) == 1 and "rank 1" in error[0], job.stderr


def test_an_exception_on_one_rank_ends_the_others_with_its_name():
    job = run_job("--nproc", 2, PROGRAM, "auto", 6, 4000, "throw", 1, 2)
    assert job.returncode == 1, job.stderr
    assert re.search(r"\[rank 0\] error: .*rank 1", job.stderr), job.stderr


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_a_stopped_rank_is_named_soon(backend):
    job = run_job("--nproc", 3, PROGRAM, backend, 6, 4000, "stop", 1, 2)
    assert job.returncode != 0
    for rank in (0, 2):
        error = [line for line in job.stderr.splitlines() if line.startswith(f"[rank {rank}] error:")]
        assert len(error) == 1 and "rank 1" in error[0], job.stderr
    # Named within 3 s, and no grace for a process that cannot act: 5 s for its own end and 5 s after SIGTERM.
    assert job.seconds < 9


def mpirun(*words):
    if not shutil.which("mpirun.openmpi"):
        pytest.skip("mpirun.openmpi is not installed")
    environment = clean_environment(OMPI_MCA_btl="self,vader,tcp", OMPI_MCA_btl_tcp_if_include="lo")
    return subprocess.run(["mpirun.openmpi", "--oversubscribe", "--allow-run-as-root", "-np", "2", PROGRAM, *map(str, words)],
                          capture_output=True, text=True, timeout=120, env=environment)


def check_early_end(job, operation):
    assert job.returncode != 0, job.stderr
    error = [line for line in job.stderr.splitlines() if re.match(r"(\[rank 0\] )?error: ", line)]
    assert len(error) == 1, job.stderr
    # Not the deadline of 20 s; both sides, the operation, and what to do.
    for text in ("rank 1 on", "has exited normally", "but rank 0 waits for it in", operation, "DistributedDataParallel::join()"):
        assert text in error[0]


@pytest.mark.parametrize("backend,how", [("shm", "leave"), ("tcp", "leave"), ("shm", "vanish")])
def test_a_rank_that_finishes_early_is_no_endless_wait(backend, how):
    job = run_job("--nproc", 2, PROGRAM, backend, 6, 4000, how, 1, 2)
    check_early_end(job, "all_reduce #5 'a'")
    assert job.returncode == 3 and "rank 1 on" in job.stderr.split("root cause")[1]


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_a_sender_that_has_finished_is_no_endless_wait(backend):
    check_early_end(run_job("--nproc", 2, PROGRAM, backend, 6, 4000, "receive", 1, 2), "receive #1 'a'")


@pytest.mark.parametrize("backend", ["shm", "mpi"])
def test_a_rank_that_finishes_early_is_no_endless_wait_under_mpirun(backend):
    check_early_end(mpirun(backend, 6, 4000, "leave", 1, 2), "all_reduce #5 'a'")


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_a_slow_rank_and_one_that_ends_later_are_no_failures(backend):
    job = run_job("--nproc", 3, PROGRAM, backend, 4, 4000, "nap", 1, 2)
    assert job.returncode == 0, job.stderr


def test_a_rank_that_never_comes_is_named_at_the_deadline():
    job = run_job("--nproc", 2, PROGRAM, "auto", 6, 4000, "slow", 1, 2, 2)
    assert job.returncode != 0
    assert re.search(r"\[rank 0\] error: .*not complete after 2 s: .*rank 1", job.stderr), job.stderr


def test_nothing_is_left_behind():
    def shared():  # without folders of unit tests that run at the same time
        return {name for name in os.listdir("/dev/shm") if not name.startswith("yoke_checkpoint_")}

    before = shared()
    run_job("--nproc", 3, PROGRAM, "shm", 6, 400000, "kill", 2, 3)
    assert shared() == before
    left = subprocess.run(["pgrep", "-f", str(PROGRAM)], capture_output=True, text=True).stdout
    assert left == ""


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "secret"
    file.write_bytes(os.urandom(32))
    file.chmod(0o600)
    return file


def start_nodes(port, secret, *words, second=()):
    common = ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "test",
              "--secret-file", secret, "--join-timeout", "30"]
    return [subprocess.Popen([str(w) for w in [YOKE, "run", *common, "--node-rank", node, *(second if node else ()), PROGRAM, *words]],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_environment())
            for node in range(2)]


def test_two_machines_by_hand_and_hostile_visitors(secret):
    """Two launchers, one endpoint; strangers hold connections before the job forms and while it runs."""
    port = free_port()
    nodes = start_nodes(port, secret, "tcp", 20, 400000)
    visitors = []
    deadline = time.monotonic() + 20
    payloads = [b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"ab", b""]
    while time.monotonic() < deadline and len(visitors) < 60:
        try:
            visitor = socket.create_connection(("127.0.0.1", port), timeout=1)
            visitor.sendall(payloads[len(visitors) % len(payloads)])
            visitors.append(visitor)
        except OSError:
            if any(node.poll() is not None for node in nodes):
                break
            time.sleep(0.02)
    for node in nodes:
        out, err = node.communicate(timeout=90)
        assert node.returncode == 0, err
        assert out.count("of 4 over tcp: 20 steps") == 2
    for visitor in visitors:
        visitor.close()


def test_a_wrong_key_is_refused(secret, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(os.urandom(32))
    other.chmod(0o600)
    port = free_port()
    nodes = start_nodes(port, secret, "tcp", 2, 4000, second=("--secret-file", other, "--join-timeout", "5"))
    nodes[1].communicate(timeout=60)
    assert nodes[1].returncode == 4
    nodes[0].send_signal(signal.SIGINT)
    nodes[0].communicate(timeout=60)
    assert nodes[0].returncode != 0


def test_several_machines_without_a_key_is_an_error():
    job = run_job("--nnodes", 2, "--nproc-per-node", 1, "--node-rank", 0, "--rdzv-endpoint", f"127.0.0.1:{free_port()}", PROGRAM)
    assert job.returncode == 2
    assert "--secret-file" in job.stderr
