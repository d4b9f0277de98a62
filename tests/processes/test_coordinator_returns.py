"""Elastic jobs that lose their coordinator: its launcher is killed and started again, or another one is elected through etcd."""
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess

import pytest
from conftest import ROOT, YOKE
from launching import Job, alive, clean_environment, parent_of, wait_until
from ports import free_port

MLP = ROOT / "configs/mlp_tiny.toml"
TRAIN = ["train", MLP, "--train.threads", 1, "--data.batch_size", 8, "--train.evaluate", "false", "--out.log_every", 1, "-q",
         "--slowdown.law", "shifted_exp:2ms,1ms"]
BUNDLED = ROOT / ".deps/etcd/usr/bin/etcd"
ETCD = str(BUNDLED) if BUNDLED.exists() else shutil.which("etcd")


class Machines:
    """Launchers on this machine, one for each machine of a job that trains into one folder."""

    def __init__(self, tmp_path):
        self.path, self.run, self.jobs, self.starts = tmp_path, tmp_path / "run", {}, 0
        self.key = tmp_path / "key"
        self.key.write_bytes(os.urandom(32))
        self.key.chmod(0o600)

    def start(self, machine, *words, machines=2, each=1, steps=400, env=None):
        folder = self.path / f"start{self.starts}"
        folder.mkdir()
        self.starts += 1
        self.jobs[machine] = Job(folder, "--elastic", "--nnodes", machines, "--node-rank", machine, "--nproc", each, "--secret-file", self.key,
                                 "--rdzv-id", self.path.name, *words, YOKE, *TRAIN, "--steps", steps, "--out.dir", self.run, env=env)

    def records(self):
        try:
            lines = (self.run / "metrics.jsonl").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def wait_for_step(self, step):
        wait_until(lambda: any(one.get("step", 0) >= step for one in self.records()) or
                   all(job.process.poll() is not None for job in self.jobs.values()), 120, self.errors)
        assert any(one.get("step", 0) >= step for one in self.records()), self.errors()

    def errors(self):
        return "\n".join(f"--- machine {machine}\n{job.err}" for machine, job in self.jobs.items())

    def check(self, steps, ranks):
        for job in self.jobs.values():
            assert job.wait(120) == 0, self.errors()
        summary = json.loads((self.run / "summary.json").read_text())
        assert summary["steps"] == steps and summary["world_size"] == ranks, self.errors()
        assert [row["step"] for row in self.records()] == list(range(1, steps + 1))
        return summary["elastic"]

    def end(self):
        for job in self.jobs.values():
            job.end()


@pytest.fixture
def machines(tmp_path):
    several = Machines(tmp_path)
    yield several
    several.end()


class Etcd:
    """A cluster of etcd processes on loopback."""

    def __init__(self, folder, size):
        self.clients, peers = [free_port() for _ in range(size)], [free_port() for _ in range(size)]
        cluster = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(peers))
        env = clean_environment(ETCD_UNSUPPORTED_ARCH={"aarch64": "arm64"}.get(platform.machine(), ""))
        self.members = []
        for i in range(size):
            client, peer = f"http://127.0.0.1:{self.clients[i]}", f"http://127.0.0.1:{peers[i]}"
            with open(folder / f"etcd{i}.log", "w") as log:
                self.members.append(subprocess.Popen(
                    [ETCD, "--name", f"m{i}", "--data-dir", folder / f"etcd{i}", "--listen-client-urls", client,
                     "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                     "--initial-cluster", cluster], stdout=log, stderr=log, env=env))
        self.endpoint = ",".join(f"127.0.0.1:{port}" for port in self.clients)
        for port in self.clients:
            wait_until(lambda: self.answers(port), 60, lambda: "etcd does not start")

    @staticmethod
    def answers(port):
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as client:
                client.settimeout(2)
                client.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                return b'"true"' in client.recv(4096)
        except OSError:
            return False

    def kill(self, member):
        self.members[member].kill()
        self.members[member].wait()

    def end(self):
        for member in range(len(self.members)):
            self.kill(member)


@pytest.fixture
def etcd(tmp_path):
    if not ETCD:
        pytest.skip("etcd is not installed (tools/setup --tests)")
    started = []

    def start(size):
        started.append(Etcd(tmp_path, size))
        return started[0]

    yield start
    for one in started:
        one.end()


def host_of(machines):
    wait_until(lambda: any("hosts the coordinator" in job.err for job in machines.jobs.values()), 60, machines.errors)
    return next(machine for machine, job in machines.jobs.items() if "hosts the coordinator" in job.err)


def test_a_launcher_that_is_started_again_takes_up_its_job(machines):
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    for machine in (0, 1):
        machines.start(machine, *endpoint, each=2, steps=2000)
    machines.wait_for_step(20)
    machines.jobs[0].signal(signal.SIGKILL)
    machines.jobs[0].wait()
    machines.start(0, *endpoint, each=2, steps=2000)
    elastic = machines.check(2000, ranks=4)
    assert elastic["losses"] == 2 and elastic["joins"] == 2 and elastic["repeated"] <= 1
    assert "the coordinator was lost" in elastic["changes"][0]["cause"]
    assert "taking up a running job in epoch 0" in machines.jobs[0].err


def test_a_first_rank_that_is_stopped_where_no_coordinator_is_is_ended(machines):
    """It holds the lock of out.dir, and does not hear that the others have left it behind."""
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--max-restarts", 3]
    for machine in (0, 1):
        machines.start(machine, *endpoint, each=2, steps=10**7)
    machines.wait_for_step(5)

    def writer():
        found = []
        wait_until(lambda: found.extend((machines.run / ".lock").read_text().split()[1:2]) or found, 10, machines.errors)
        return int(found[0])

    for round in range(2):  # restarted, the ranks of machine 0 are behind those of machine 1
        os.kill(writer(), signal.SIGKILL)
        wait_until(lambda: len(re.findall(r"epoch \d+: 4 ranks\b", machines.jobs[0].err)) > round, 60, machines.errors)
        machines.wait_for_step(machines.records()[-1]["step"] + 2)
    first = writer()
    assert parent_of(first) == machines.jobs[1].process.pid, machines.errors()
    os.kill(first, signal.SIGSTOP)
    wait_until(lambda: not alive(first) and writer() != first, 60, machines.errors)
    step = machines.records()[-1]["step"]
    machines.wait_for_step(step + 20)
    for job in machines.jobs.values():
        job.signal(signal.SIGTERM)
    assert [job.wait(60) for job in machines.jobs.values()] == [128 + signal.SIGTERM] * 2, machines.errors()
    assert "is in use" not in machines.errors()


def test_a_job_without_a_coordinator_ends_with_an_error_that_says_so(machines):
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--join-timeout", 3]
    for machine in (0, 1):
        machines.start(machine, *endpoint, steps=100000)
    machines.wait_for_step(5)
    machines.jobs[0].signal(signal.SIGKILL)
    assert machines.jobs[1].wait(60) == 3
    assert "none took its place within 3 s" in machines.jobs[1].err


def test_another_machine_is_elected_when_launcher_and_etcd_member_die(machines, etcd):
    cluster = etcd(3)
    for machine in range(3):
        machines.start(machine, "--rdzv-backend", "etcd", "--rdzv-endpoint", cluster.endpoint, machines=3, steps=2000)
    machines.wait_for_step(20)
    cluster.kill(0)
    machines.wait_for_step(60)
    host = host_of(machines)
    machines.jobs.pop(host).signal(signal.SIGKILL)
    elastic = machines.check(2000, ranks=2)
    assert elastic["losses"] == 1 and elastic["repeated"] <= 1
    assert "hosts the coordinator" in machines.errors()


def test_a_host_that_is_preempted_hands_over(machines, etcd):
    cluster = etcd(1)
    for machine in range(2):
        machines.start(machine, "--rdzv-backend", "etcd", "--rdzv-endpoint", cluster.endpoint, steps=2000)
    machines.wait_for_step(20)
    host = machines.jobs.pop(host_of(machines))
    host.signal(signal.SIGTERM)
    machines.check(2000, ranks=1)
    assert host.wait() == 0, host.err  # it has left; the job went on


@pytest.mark.parametrize("words, said", [
    (["--rdzv-backend", "etcd", "--rdzv-id", "x", "--elastic"], "needs --rdzv-endpoint"),
    (["--rdzv-backend", "etcd", "--rdzv-endpoint", "127.0.0.1:2379", "--elastic"], "needs --rdzv-id"),
    (["--rdzv-backend", "etcd", "--rdzv-endpoint", "127.0.0.1:2379", "--rdzv-id", "x"], "Add --elastic"),
    (["--rdzv-backend", "etcd", "--rdzv-endpoint", "http://a:2379", "--rdzv-id", "x", "--elastic"], "without a scheme"),
])
def test_what_etcd_needs(yoke, words, said):
    assert said in yoke("run", *words, "true", code=2).err


def test_an_etcd_that_is_not_there_is_named(yoke):
    port = free_port()
    failed = yoke("run", "--rdzv-backend", "etcd", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "x", "--elastic", "true", code=4)
    assert "etcd does not answer" in failed.err and f"127.0.0.1:{port}" in failed.err
