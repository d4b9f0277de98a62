"""Jobs over two machines in miniature, joined by a link that is slow, loses packets or is cut."""
import json
import re
import subprocess
import sys
import time

import pytest
from conftest import ROOT, YOKE
from test_collectives import PROGRAM, clean_environment
from two_machines import make_secret, sh

RATE = 1e9 / 8  # bytes a second of the shaped link; of 1514 bytes of a packet 1448 are ours, so 0.956 is all there is


def start(machines, node, secret, *words, nproc=1):
    return machines.run(YOKE, node, secret, *words, nproc=nproc, stdout=subprocess.PIPE, env=clean_environment())


def bench(machines, secret, *words, nproc=1):
    nodes = [start(machines, node, secret, YOKE, "bench", "collectives", "--json", "-q", *words, nproc=nproc) for node in range(2)]
    texts = [node.communicate(timeout=120) for node in nodes]
    for node, (out, err) in zip(nodes, texts):
        assert node.returncode == 0, err
    return json.loads(re.sub(r"^\[rank 0[^\]]*\] ", "", texts[0][0], flags=re.M))["results"]


PLAIN = '''
import socket, statistics, sys, threading, time
SIZE, ROUNDS = 16 << 20, 9
def pull(s, memory):
    at = 0
    while at < SIZE: at += s.recv_into(memoryview(memory)[at:])
if sys.argv[1] == "0":
    listener = socket.create_server(("10.83.0.1", 29577)); print("ready", flush=True); s = listener.accept()[0]
else:
    s = socket.create_connection(("10.83.0.1", 29577), 30)
out, into, seconds = bytes(SIZE), bytearray(SIZE), []
for _ in range(ROUNDS):
    begin = time.perf_counter()
    sender = threading.Thread(target=s.sendall, args=(out,)); sender.start(); pull(s, into); sender.join()
    s.sendall(b"x"); s.recv(1)
    seconds.append(time.perf_counter() - begin)
if sys.argv[1] == "0": print(SIZE / statistics.median(seconds))
'''


def share_of_plain_sockets(machines):
    """What two plain streams, one each way, reach of the link with whatever else this machine does now."""
    begin = lambda node: subprocess.Popen([*machines.inside(node), sys.executable, "-c", PLAIN, str(node)],
                                          stdout=subprocess.PIPE, text=True)
    first = begin(0)
    assert first.stdout.readline() == "ready\n"
    second = begin(1)
    out = first.communicate(timeout=60)[0]
    assert second.wait(60) == 0
    return float(out) / RATE


def share_of_the_bound(machines, secret):
    row = bench(machines, secret, "--backend", "tcp", "--bytes", "16M", "--iterations", "9")[0]
    assert row["correct"] and row["ranks"] == 2
    return row["bytes_sent"][0] / RATE / row["seconds"]["median"]


def test_all_reduce_fills_a_gigabit_link(machines, secret):
    machines.shape("1gbit")
    tries = []
    for _ in range(3):
        ours = share_of_the_bound(machines, secret)
        tries.append((ours, None if ours > 0.9 else share_of_plain_sockets(machines)))
        if ours > 0.9:
            break
    print("share of the link's bound:", ", ".join(f"{ours:.3f}" + (f" (plain sockets {plain:.3f})" if plain else "") for ours, plain in tries))
    if tries[-1][0] <= 0.9 and max(plain for ours, plain in tries) < 0.9:
        pytest.skip(f"this machine is too busy: plain sockets do not fill the link either ({tries})")
    assert tries[-1][0] > 0.9


def test_ranks_of_two_machines_reduce_inside_first(machines, secret):
    row = bench(machines, secret, "--bytes", "400000", "--iterations", "2", nproc=2)[0]
    assert row["correct"] and row["ranks"] == 4 and row["backend"] == "hierarchical"


def test_loss_changes_nothing_but_the_time(machines, secret):
    for node in range(2):
        machines.drop(node, "numgen random mod 100 < 2 drop")
    nodes = [start(machines, node, secret, PROGRAM, "tcp", 5, 400000) for node in range(2)]
    for node in nodes:
        out, err = node.communicate(timeout=120)
        assert node.returncode == 0, err


def test_a_cut_link_ends_the_job_on_both_sides(machines, secret):
    # Ranks meet within 3 s, and an operation may take 3 s.
    nodes = [start(machines, node, secret, "--join-timeout", 3, PROGRAM, "tcp", 100000, 40000, "none", -1, -1, 3) for node in range(2)]
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        established = sh(*machines.inside(0), "ss", "-tn", "state", "established").stdout
        if established.count("10.83.0.1") >= 2:
            break
    sh("ip", "-n", machines.names[0], "link", "set", "eth0", "down")
    begin = time.monotonic()
    for node in nodes:
        out, err = node.communicate(timeout=90)
        assert node.returncode != 0
        assert re.search(r"error: |failed", err), err
    assert time.monotonic() - begin < 60


def test_a_cut_between_ranks_that_reach_the_coordinator_is_noticed(machines, secret):
    # Heartbeats arrive; an operation may take 300 s.
    nodes = [start(machines, node, secret, PROGRAM, "tcp", 10**7, 40000, "none", -1, -1, 300) for node in range(2)]
    deadline = time.monotonic() + 60
    while sh(*machines.inside(1), "ss", "-Htn", "state", "established").stdout.count("10.83.0.1:") < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    machines.drop(1, "tcp sport 29571 accept", "tcp dport 29571 accept", "iifname eth0 meta l4proto tcp drop")
    texts = [node.communicate(timeout=120)[1] for node in nodes]
    assert all(node.returncode != 0 for node in nodes) and any("has acknowledged nothing for 2" in text for text in texts), texts


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_ends_the_job_on_both_machines(machines, secret, victim):
    # Its launcher is told by nobody but the coordinator, which is elsewhere for one of the two.
    begin = time.monotonic()
    nodes = [start(machines, node, secret, PROGRAM, "tcp", 6, 4000, "stop", victim, 2) for node in range(2)]
    for node in nodes:
        out, err = node.communicate(timeout=60)
        assert node.returncode != 0 and f"rank {victim}" in err, err
    assert time.monotonic() - begin < 20


class Inside:
    """A program on one of the machines; what it says goes to a file."""

    def __init__(self, machines, node, path, *words):
        self.path = path
        with open(path, "w") as said:
            command = [str(word) for word in (*machines.inside(node), YOKE, *words)]
            self.process = subprocess.Popen(command, stdout=said, stderr=said, env=clean_environment(), start_new_session=True)

    def await_words(self, words, seconds=60):
        limit = time.monotonic() + seconds
        while words not in self.path.read_text():
            assert time.monotonic() < limit and self.process.poll() is None, self.path.read_text()
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def test_servers_and_workers_join_from_another_machine(machines, secret, tmp_path):
    where = f"{machines.head}:29571"
    words = ["train", ROOT / "configs/mlp_tiny.toml", "--parallel.sync", "ps", "--ps.max_servers", 3, "--ps.max_workers", 3, "--ps.range_bytes", "1KB",
             "--parallel.backend", "tcp", "--train.threads", 1, "--no-train.evaluate", "--steps", 10**7, "--out.dir", tmp_path / "run", "-q"]

    def other(*words):
        command = [str(word) for word in (*machines.inside(1), YOKE, *words, "--secret-file", secret)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())

    def servers():
        seen = other("ps", "top", where, "--once", "--json")
        return len(json.loads(seen.stdout)["servers"]) if seen.returncode == 0 else 0

    with Inside(machines, 0, tmp_path / "job", "run", "--nproc", 3, "--rdzv-endpoint", where, "--secret-file", secret, YOKE, *words) as job:
        limit = time.monotonic() + 60
        while servers() < 1:
            assert time.monotonic() < limit and job.process.poll() is None, job.path.read_text()
        late = ["--secret-file", secret, "--config", tmp_path / "run/config.toml"]
        with Inside(machines, 1, tmp_path / "server", "ps", "join", where, *late) as server, \
                Inside(machines, 1, tmp_path / "worker", "ps", "join", where, "--worker", *late) as worker:
            server.await_words("joined as parameter server 1")
            worker.await_words("joined as worker ")
            job.await_words("serves home")
            assert servers() == 2
            number = int(re.search(r"joined as worker (\d+)", worker.path.read_text())[1])
            left = other("ps", "leave", where, "--worker", number)
            assert left.returncode == 0 and f"worker {number} has left" in left.stdout, left.stderr
            assert worker.process.wait(60) == 0, worker.path.read_text()
            assert other("ps", "leave", where, 1).returncode == 0
            assert server.process.wait(60) == 0, server.path.read_text()
        job.process.terminate()
        assert job.process.wait(60) == 128 + 15, job.path.read_text()


def test_a_job_cannot_be_reached_without_its_key(machines, secret, tmp_path):
    refused = make_secret(tmp_path / "other")
    with Inside(machines, 0, tmp_path / "job", "run", "--nproc", 2, "--rdzv-endpoint", f"{machines.head}:29571", "--secret-file", secret, "sleep", 600):
        for words, says in [(["--secret-file", refused], "refused"), ([], "needs the key of the job")]:
            command = [str(word) for word in (*machines.inside(1), YOKE, "ps", "top", f"{machines.head}:29571", "--once", *words)]
            for _ in range(100):
                run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())
                if says in run.stderr:
                    break
                time.sleep(0.05)  # the launcher does not listen yet
            assert says in run.stderr and run.returncode != 0
