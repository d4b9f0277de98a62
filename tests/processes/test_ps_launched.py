"""Parameter servers under `yoke run`, whose launchers learn from the ranks which of them the job can lose."""
import json
import os

import pytest
from conftest import ROOT, YOKE
from launching import Job
from ports import free_port

MLP = ROOT / "configs/mlp_tiny.toml"
WORKERS, SERVERS = 2, 3


def training(folder, *words):
    return [YOKE, "train", MLP, "--parallel.sync", "ps", "--ps.servers", SERVERS, "--ps.replicas", 1, "--ps.range_bytes", "1KB", "--parallel.backend", "tcp",
            "--train.threads", 1, "--no-train.evaluate", "--steps", 60, "--out.dir", folder, "-q", *words]


@pytest.fixture
def machines(tmp_path):
    """Starts `yoke run` on one machine, or a launcher for each of several."""
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    started = []

    def start(sizes, program, fault=""):
        port = free_port()
        for number, size in enumerate(sizes):
            folder = tmp_path / f"machine{len(started)}"
            folder.mkdir()
            words = ["--nproc", size]
            if len(sizes) > 1:
                words += ["--nnodes", len(sizes), "--node-rank", number, "--rdzv-endpoint", f"127.0.0.1:{port}", "--secret-file", key]
            started.append(Job(folder, *words, *program, env={"YOKE_FAULT": fault} if fault else {}))
        return started[-len(sizes):]

    yield start
    for job in started:
        job.end()


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


# The scheduler, a server on the second machine, and a worker, which costs its minibatches.
@pytest.mark.parametrize("sizes", [[5], [3, 3]], ids=["one machine", "two machines"])
@pytest.mark.parametrize("lost", ["server 0", "server 2", "worker 1"])
def test_a_lost_rank_does_not_end_the_job(machines, tmp_path, sizes, lost):
    workers = sum(sizes) - SERVERS
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    kind, number = lost.split()
    rank = int(number) + (workers if kind == "server" else 0)
    point = "ps.replicated" if kind == "server" else "ps.push"
    jobs = machines(sizes, training(broken), fault=f"rank={rank},at={point},hit=40:kill")
    assert [job.wait(120) for job in jobs] == [0] * len(jobs), "\n".join(job.err for job in jobs)
    log = "".join(job.err for job in jobs)
    assert "the others continue without it" in log and summary(broken)["steps"] == 60
    if kind == "server":
        assert [job.wait(120) for job in machines(sizes, training(whole))] == [0] * len(sizes)
        assert summary(broken)["parameter_hash"] == summary(whole)["parameter_hash"]


def test_without_copies_a_lost_server_ends_the_job_by_name(machines, tmp_path):
    jobs = machines([5], training(tmp_path / "run", "--ps.replicas", 0), fault="rank=3,at=ps.server.update,hit=40:kill")
    assert jobs[0].wait(120) == 137
    assert "parameter server 1 (rank 3)" in jobs[0].err and "killed by signal 9" in jobs[0].err
