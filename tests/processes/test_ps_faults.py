"""Workers and servers that are killed in the middle of a run."""
import json
import os
import signal
import subprocess
import time

import pytest
from conftest import ROOT, YOKE
from launching import TrainingJob, alive, clean_environment, wait_until
from ports import free_port

MLP = ROOT / "configs/mlp_tiny.toml"
SPARSE = ROOT / "configs/sparse_lr.toml"


class Training(TrainingJob):
    def __init__(self, folder, *words, config=MLP, sync="ps"):
        super().__init__(folder, config, "--parallel.sync", sync, "--slowdown.law", "exp:5ms", *words)


def train_and_kill(folder, rank, words):
    """Kills a rank in the middle of 400 steps, which the others go on to finish: the log, and which workers were lost."""
    job = Training(folder, *words, "--steps", 400)
    try:
        job.wait_for_step(50)
        killed = time.monotonic()
        os.kill(job.rank(rank), signal.SIGKILL)
        at = job.steps()
        wait_until(lambda: job.steps() > at + 20 or job.process.poll() is not None, 60, job.log.read_text)
        assert time.monotonic() - killed < 20
        out, _ = job.process.communicate(timeout=180)
        assert job.process.returncode == 0, job.log.read_text()
        assert json.loads(out)["steps"] == 400
        workers = json.loads((folder / "run/ps.json").read_text())["workers"]
        return job.log.read_text(), [worker["lost"] for worker in workers]
    finally:
        job.end()


# With a norm the servers wait for each other before they update.
@pytest.mark.parametrize("rule,clip_norm", [("sync", 0), ("k_sync", 0), ("async", 0), ("k_batch_async", 0), ("sync", 0.1), ("k_batch_sync", 0.1), ("bounded_delay", 0.1)])
def test_a_killed_worker_is_done_without(tmp_path, rule, clip_norm):
    words = ["--nproc", 3, "--ps.servers", 2, "--ps.policy", rule, "--ps.k", 2, "--train.clip_norm", clip_norm]
    log, lost = train_and_kill(tmp_path, 2, words)
    assert "worker 2 is lost" in log and lost[2]


@pytest.mark.parametrize("loss", ["continue", "restart"])
@pytest.mark.parametrize("rule", ["sync", "async"])
def test_tables_survive_a_killed_worker(tmp_path, rule, loss):
    job = Training(tmp_path, "--nproc", 3, "--ps.servers", 2, "--ps.policy", rule, "--ps.sparse", "on", "--ps.on_worker_loss", loss, "--steps", 1500,
                   "--no-train.evaluate", config=SPARSE)
    try:
        job.wait_for_step(50)
        os.kill(job.rank(2), signal.SIGKILL)
        if loss == "restart":
            wait_until(lambda: "worker 2 rejoined" in job.log.read_text() or job.process.poll() is not None, 120, job.log.read_text)
        out, _ = job.process.communicate(timeout=300)
        assert job.process.returncode == 0, job.log.read_text()
        assert json.loads(out)["steps"] == 1500
        counts = json.loads((tmp_path / "run/ps.json").read_text())
        assert counts["workers"][2]["lost"] == (loss == "continue") and counts["sparse"]["messages"] > 0
        assert [one["worker"] for one in counts["sparse"]["workers"]] == ([0, 1] if loss == "continue" else [0, 1, 2])
    finally:
        job.end()


def test_a_killed_worker_ends_the_job_where_that_is_wanted(tmp_path):
    job = Training(tmp_path, "--nproc", 2, "--steps", 100000, "--ps.on_worker_loss", "stop")
    try:
        job.wait_for_step(30)
        os.kill(job.rank(1), signal.SIGKILL)
        assert job.process.wait(30) == 128 + signal.SIGKILL
        assert "rank 1" in job.log.read_text()
    finally:
        job.end()


@pytest.mark.parametrize("rule,steps,clip_norm", [("sync", 1500, 0), ("k_async", 3000, 0), ("sync", 1500, 0.1)])
def test_a_killed_worker_is_started_again(tmp_path, rule, steps, clip_norm):
    job = Training(tmp_path, "--nproc", 3, "--ps.servers", 2, "--ps.policy", rule, "--ps.k", 2, "--train.clip_norm", clip_norm, "--steps", steps,
                   "--ps.on_worker_loss", "restart")
    try:
        job.wait_for_step(50)
        first = job.rank(2)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: "worker 2 rejoined" in job.log.read_text() or job.process.poll() is not None, 120, job.log.read_text)
        assert job.process.poll() is None, job.log.read_text()
        assert job.rank(2) != first
        at = job.steps()
        job.wait_for_step(at + 20)
        out, _ = job.process.communicate(timeout=300)
        log = job.log.read_text()
        assert job.process.returncode == 0, log
        assert json.loads(out)["steps"] == steps
        assert "worker 2 is lost" in log and "workers: 2" in log and "workers: 3" in log
        workers = json.loads((tmp_path / "run/ps.json").read_text())["workers"]
        assert [worker["lost"] for worker in workers] == [False] * 3
        assert [worker["rejoined"] for worker in workers] == [0, 0, 1]
    finally:
        job.end()


def test_a_worker_may_be_started_again_by_hand(tmp_path):
    port = free_port()
    words = [str(YOKE), "train", str(MLP), "--parallel.sync", "ps", "--ps.policy", "async", "--steps", "10000", "--slowdown.law", "exp:5ms", "--train.threads", "1",
             "--out.dir", str(tmp_path / "run"), "--out.log_every", "10"]
    ranks = []

    def start(rank):
        env = clean_environment(RANK=rank, WORLD_SIZE=4, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=4, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        with open(tmp_path / f"{len(ranks)}.err", "w") as err:
            ranks.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=err, env=env, cwd=ROOT, start_new_session=True))

    def logs():
        return "".join(file.read_text() for file in sorted(tmp_path.glob("*.err")))

    try:
        for rank in range(4):
            start(rank)
        metrics = tmp_path / "run/metrics.jsonl"
        wait_until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 5, 120, logs)
        ranks[1].kill()
        wait_until(lambda: "worker 1 is lost" in logs(), 30, logs)
        start(1)
        wait_until(lambda: "worker 1 rejoined" in logs(), 120, logs)
        assert [ranks[i].wait(300) for i in (0, 2, 3, 4)] == [0] * 4, logs()
        assert not json.loads((tmp_path / "run/ps.json").read_text())["workers"][1]["lost"]
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait(30)


@pytest.mark.parametrize("clip_norm", [0, 0.1])
def test_a_killed_server_is_named_with_the_last_checkpoint(tmp_path, clip_norm):
    job = Training(tmp_path, "--nproc", 2, "--ps.servers", 2, "--train.clip_norm", clip_norm, "--steps", 100000, "--checkpoint.every_steps", 20,
                   "--ps.on_server_loss", "stop")
    try:
        job.wait_for_step(60)
        os.kill(job.rank(3), signal.SIGKILL)
        assert job.process.wait(30) == 128 + signal.SIGKILL
        log = job.log.read_text()
        assert "parameter server 1 (rank 3)" in log and "killed by signal 9" in log
        assert "The last checkpoint is" in log and "step-" in log
    finally:
        job.end()


def test_a_worker_that_crashes_ends_the_job(tmp_path):
    job = Training(tmp_path, "--nproc", 3, "--steps", 100000)
    try:
        job.wait_for_step(30)
        os.kill(job.rank(2), signal.SIGABRT)
        assert job.process.wait(30) == 128 + signal.SIGABRT
        assert "worker 2 (rank 2)" in job.log.read_text()
    finally:
        job.end()


# All servers run the same program: the next attempt would end as this one did.
def test_a_server_that_crashes_ends_the_job(tmp_path):
    job = Training(tmp_path, "--nproc", 2, "--ps.servers", 2, "--steps", 100000, "--checkpoint.every_steps", 20)
    try:
        job.wait_for_step(60)
        os.kill(job.rank(3), signal.SIGABRT)
        assert job.process.wait(30) == 128 + signal.SIGABRT
        log = job.log.read_text()
        assert "parameter server 1 (rank 3)" in log and "Restarting" not in log
    finally:
        job.end()


SERVED = ["--nproc", 2, "--ps.servers", 3, "--ps.range_bytes", "1KB", "--no-train.evaluate"]


def result(job):
    try:
        out, _ = job.process.communicate(timeout=180)
        assert job.process.returncode == 0, job.log.read_text()
        return json.loads(out)
    finally:
        job.end()


# Nothing but its heartbeats shows that it is stopped: its connections stay open.
@pytest.mark.parametrize("server", [0, 1])
def test_a_server_that_is_stopped_is_done_without(tmp_path, server):
    (tmp_path / "whole").mkdir()
    whole = result(TrainingJob(tmp_path / "whole", MLP, "--parallel.sync", "ps", *SERVED, "--steps", 400))
    job = Training(tmp_path, *SERVED, "--ps.replicas", 1, "--steps", 400)
    try:
        job.wait_for_step(50)
        stopped = job.rank(2 + server)
        os.kill(stopped, signal.SIGSTOP)
        at = job.steps()
        wait_until(lambda: job.steps() > at + 20 or job.process.poll() is not None, 60, job.log.read_text)
        wait_until(lambda: not alive(stopped), 30, job.log.read_text)
        ended = result(job)
        assert ended["steps"] == 400 and ended["parameter_hash"] == whole["parameter_hash"]
        log = job.log.read_text()
        assert f"parameter server {server} (rank {2 + server})" in log and "no heartbeat" in log and "took over" in log
        assert json.loads((tmp_path / "run/ps.json").read_text())["servers_lost"] == 1
    finally:
        job.end()


def test_a_server_without_copies_that_is_stopped_is_named(tmp_path):
    job = Training(tmp_path, *SERVED, "--steps", 100000, "--ps.on_server_loss", "stop")
    try:
        job.wait_for_step(30)
        os.kill(job.rank(3), signal.SIGSTOP)
        assert job.process.wait(60) == 3
        assert "parameter server 1 (rank 3)" in job.log.read_text()
    finally:
        job.end()


@pytest.mark.parametrize("stuck", [0, 2])
def test_a_worker_that_is_stuck_is_named(tmp_path, stuck):
    job = Training(tmp_path, "--nproc", 3, "--steps", 100000, "--ps.timeout", "3s")
    try:
        job.wait_for_step(30)
        os.kill(job.rank(stuck), signal.SIGSTOP)
        assert job.process.wait(60) == (3 if stuck == 2 else job.process.returncode) != 0
        assert f"worker {stuck} (rank {stuck})" in job.log.read_text()
    finally:
        job.end()


def test_a_worker_without_a_server_inside_is_done_without(tmp_path):
    job = Training(tmp_path, "--nproc", 3, "--ps.servers", 2, "--ps.place", "colocated", "--steps", 300)
    try:
        job.wait_for_step(50)
        os.kill(job.rank(2), signal.SIGKILL)
        out, _ = job.process.communicate(timeout=180)
        assert job.process.returncode == 0, job.log.read_text()
        assert json.loads(out)["steps"] == 300
        assert "worker 2 is lost" in job.log.read_text()
    finally:
        job.end()


def test_a_worker_with_a_server_inside_ends_the_job(tmp_path):
    job = Training(tmp_path, "--nproc", 3, "--ps.servers", 2, "--ps.place", "colocated", "--steps", 100000, "--checkpoint.every_steps", 20)
    try:
        job.wait_for_step(60)
        os.kill(job.rank(1), signal.SIGKILL)
        assert job.process.wait(30) == 128 + signal.SIGKILL
        log = job.log.read_text()
        assert "rank 1" in log and "killed by signal 9" in log and "The last checkpoint is" in log
    finally:
        job.end()


@pytest.mark.parametrize("rule", ["async", "sync"])
def test_a_stopped_run_is_saved_and_goes_on(tmp_path, rule):
    job = Training(tmp_path, "--nproc", 2, "--ps.servers", 2, "--steps", 100000, "--ps.policy", rule, "--train.clip_norm", 0.1, "--checkpoint.every_steps", 1000000)
    try:
        job.wait_for_step(30)
        os.kill(job.process.pid, signal.SIGTERM)
        assert job.process.wait(30) == 128 + signal.SIGTERM
        saved = [int(p.name.split("-")[1]) for p in (tmp_path / "run/checkpoints").glob("step-*[0-9]")]
        assert len(saved) == 1 and saved[0] >= 30
    finally:
        job.end()


# Replicas of several ranks: rank 3 is stage (or slice) 1 of worker 1.
PARTS = [["--parallel.pipeline", 2], ["--parallel.tensor", 2]]


@pytest.mark.parametrize("parts", PARTS, ids=["pipeline", "tensor"])
@pytest.mark.parametrize("rule", ["sync", "async"])
def test_a_replica_that_loses_a_rank_is_done_without(tmp_path, parts, rule):
    log, lost = train_and_kill(tmp_path, 3, ["--nproc", 4, *parts, "--ps.servers", 2, "--ps.policy", rule])
    assert "worker 1 is lost" in log and "this rank ends, too" in log
    assert lost == [False, True]


@pytest.mark.parametrize("rank, words, role", [(3, ["--ps.on_worker_loss", "stop"], "worker 1, stage 1"), (2, [], "worker 0, stage 1"), (5, ["--ps.on_server_loss", "stop"], "parameter server 1")])
def test_a_lost_part_or_server_is_named_with_its_role(tmp_path, rank, words, role):
    job = Training(tmp_path, "--nproc", 4, "--parallel.pipeline", 2, "--ps.servers", 2, "--steps", 100000, "--checkpoint.every_steps", 20, *words)
    try:
        job.wait_for_step(40)
        os.kill(job.rank(rank), signal.SIGKILL)
        assert job.process.wait(60) == 128 + signal.SIGKILL
        log = job.log.read_text()
        assert f"{role} (rank {rank})" in log and "killed by signal 9" in log and "The last checkpoint is" in log
    finally:
        job.end()


def test_a_stopped_run_of_replicas_is_saved_and_goes_on(tmp_path):
    job = Training(tmp_path, "--nproc", 4, "--parallel.pipeline", 2, "--steps", 100000, "--ps.policy", "async", "--checkpoint.every_steps", 1000000)
    try:
        job.wait_for_step(30)
        os.kill(job.process.pid, signal.SIGTERM)
        assert job.process.wait(60) == 128 + signal.SIGTERM
        saved = [int(p.name.split("-")[1]) for p in (tmp_path / "run/checkpoints").glob("step-*[0-9]")]
        assert len(saved) == 1 and saved[0] >= 30
    finally:
        job.end()


@pytest.mark.parametrize("sync,ranks,words", [("allreduce", 2, []), ("ps", 3, []), ("ps", 4, ["--ps.servers", 2, "--ps.replicas", 1])], ids=["allreduce", "ps", "copies"])
def test_a_suspended_machine_is_nobodys_fault(tmp_path, sync, ranks, words):
    """As after a laptop was closed or a virtual machine moved: everybody, the launcher too, was silent for as long."""
    job = Training(tmp_path, "--nproc", 2, "--steps", 1000, *words, sync=sync)
    try:
        job.wait_for_step(50)
        everybody = [job.process.pid] + [job.rank(rank) for rank in range(ranks)]
        for number, seconds in [(signal.SIGSTOP, 5), (signal.SIGCONT, 0)]:
            for pid in everybody:
                os.kill(pid, number)
            time.sleep(seconds)
        out, _ = job.process.communicate(timeout=180)
        assert job.process.returncode == 0, job.log.read_text()
        assert json.loads(out)["steps"] == 1000
        assert "evicted" not in job.log.read_text()
    finally:
        job.end()
