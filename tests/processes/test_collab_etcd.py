"""Collaborative runs whose meeting point is kept in etcd: they outlive the process that started them."""
import base64
import json
import re
import signal
import subprocess
import urllib.request

import pytest
from conftest import ROOT, YOKE
from launching import clean_environment, wait_until
from test_coordinator_returns import etcd, free_port  # noqa: F401 (a fixture)

MLP = ROOT / "configs/mlp_tiny.toml"
PATIENCE = 300  # seconds
ENDLESS = 1_000_000  # steps


class Peers:
    def __init__(self, folder, endpoint):
        self.folder, self.endpoint, self.ticket, self.all = folder, endpoint, folder / "ticket", []

    def add(self, name, *words):
        errors = open(self.folder / f"{name}.err", "w+")
        command = [YOKE, "collab", *words, "--out.dir", self.folder / name, "--out.log_every", 1, "--train.threads", 1, "--data.batch_size", 8,
                   "--collab.timeout", "10s", "--json"]
        process = subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT, env=clean_environment())
        process.said = lambda: (self.folder / f"{name}.err").read_text()
        self.all.append(process)
        return process

    def start(self, *words, steps=ENDLESS):
        starter = self.add("starter", "start", MLP, "--meeting", f"etcd://{self.endpoint}", "--ticket-file", self.ticket, "--target-batch", 64,
                           "--steps", steps, *words)
        self.until(lambda: self.ticket.exists() and self.ticket.read_text().endswith("\n"), starter)
        return starter

    def join(self, name, *words):
        return self.add(name, "join", self.ticket, *words)

    def watch(self):
        done = subprocess.run([str(YOKE), "collab", "watch", str(self.ticket), "--json"], capture_output=True, text=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def present(self):
        status = self.watch()
        return len([peer for peer in status["peers"] if peer["state"] != "gone"]) if status is not None else None

    def until(self, condition, peer):
        wait_until(lambda: condition() or peer.poll() is not None, PATIENCE, peer.said)
        assert peer.poll() is None, peer.said()

    def epoch(self):
        seen = []
        wait_until(lambda: (status := self.watch()) is not None and not seen.append(status["epoch"]), PATIENCE, lambda: "nobody hosts the run")
        return seen[-1]

    def until_epoch(self, epoch, peer):
        self.until(lambda: (status := self.watch()) is not None and status["epoch"] >= epoch, peer)

    def end(self):
        for peer in self.all:
            if peer.poll() is None:
                peer.kill()
            peer.communicate()


@pytest.fixture
def peers(tmp_path, etcd):  # noqa: F811
    made = Peers(tmp_path, etcd(1).endpoint)
    yield made
    made.end()


@pytest.fixture
def cluster_and_peers(tmp_path, etcd):  # noqa: F811
    cluster = etcd(3)
    made = Peers(tmp_path, cluster.endpoint)
    yield cluster, made
    made.end()


def ask_etcd(endpoint, path, **body):
    request = urllib.request.Request(f"http://{endpoint}/v3/{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


def granted_seconds(endpoint, key):
    """Of the lease that this key has."""
    found = ask_etcd(endpoint, "kv/range", key=base64.b64encode(key.encode()).decode())["kvs"][0]
    return int(ask_etcd(endpoint, "lease/timetolive", ID=found["lease"])["grantedTTL"]) if "lease" in found else None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_another_peer_hosts_the_run_when_the_process_that_started_it_is_gone(peers, how):
    starter = peers.start()
    one, client = peers.join("one"), peers.join("client", "--client-only")
    peers.until(lambda: all("took the state" in peer.said() for peer in (one, client)), starter)
    peers.until_epoch(3, starter)
    starter.send_signal(how)
    starter.communicate(timeout=PATIENCE)
    peers.until(lambda: "in this process" in one.said(), one)
    reached = int(one.said().split("the run continues from step ")[1].split()[0].rstrip(";")) if "continues from step" in one.said() else 3
    peers.until_epoch(reached + 3, one)
    late = peers.join("late")
    peers.until(lambda: "took the state" in late.said(), late)
    peers.until(lambda: peers.present() == 3, client)
    for peer in (client, late, one):
        peer.send_signal(signal.SIGTERM)
        assert json.loads(peer.communicate(timeout=PATIENCE)[0])["steps"] >= 3


def test_a_run_whose_last_step_nobody_can_be_asked_for_continues_from_an_older_one(peers):
    starter = peers.start()
    one, client = peers.join("one"), peers.join("client", "--client-only")
    peers.until(lambda: all("took the state" in peer.said() for peer in (one, client)), starter)
    peers.until_epoch(3, starter)
    one.send_signal(signal.SIGSTOP)
    missed = peers.epoch() + 3  # the step at which it was stopped is one of the first of these
    peers.until_epoch(missed, starter)
    starter.kill()
    starter.communicate(timeout=PATIENCE)
    one.send_signal(signal.SIGCONT)
    peers.until(lambda: "nobody can be asked for step" in one.said(), one)
    reached = int(one.said().split("the run continues from step ")[1].split(";")[0])
    assert reached < missed
    peers.until_epoch(reached + 3, one)
    taken = lambda: [int(step) for step in re.findall(r"took the state of step (\d+) from", client.said())]  # noqa: E731
    peers.until(lambda: len(taken()) > 1, client)
    assert taken()[-1] >= reached  # the other one may have made a step by then
    for peer in (client, one):
        peer.send_signal(signal.SIGTERM)
        assert json.loads(peer.communicate(timeout=PATIENCE)[0])["steps"] >= 1


def test_a_run_in_etcd_ends_as_any_other(peers):
    starter, other = peers.start("--collab.min_peers", 2, "--run-id", "name", steps=8), peers.join("other")
    assert granted_seconds(peers.endpoint, "/yoke/collab/name/settings") is None
    summaries = [json.loads(peer.communicate(timeout=PATIENCE)[0]) for peer in (starter, other)]
    assert [summary["over"] for summary in summaries] == [True, True]
    assert summaries[0]["parameter_hash"] == summaries[1]["parameter_hash"]
    assert [granted_seconds(peers.endpoint, f"/yoke/collab/name/{key}") for key in ("record", "settings")] == [3600, 3600]


def test_a_run_outlives_a_member_of_etcd_and_its_host(cluster_and_peers):
    cluster, peers = cluster_and_peers
    starter, one = peers.start(), peers.join("one")
    peers.until(lambda: "took the state" in one.said(), starter)
    peers.until_epoch(3, starter)
    cluster.kill(0)
    reached = peers.epoch()
    peers.until_epoch(reached + 3, starter)
    starter.kill()
    starter.communicate(timeout=PATIENCE)
    peers.until(lambda: "in this process" in one.said(), one)
    peers.until_epoch(reached + 6, one)
    late = peers.join("late")
    peers.until(lambda: "took the state" in late.said(), late)


def test_what_a_run_in_etcd_refuses(peers, yoke, tmp_path):
    starter = peers.start("--collab.min_peers", 2, "--run-id", "name")
    again = ["collab", "start", MLP, "--meeting", f"etcd://{peers.endpoint}", "--out.dir", tmp_path / "x"]
    assert "etcd has a run of that name" in yoke(*again, "--run-id", "name", code=2).err
    assert "Remove it" in yoke(*again, "--announce", "a:1", code=2).err
    assert "yoke collab join" in yoke("collab", "start", MLP, "--continue", "--ticket-file", peers.ticket, "--out.dir", tmp_path / "x", code=2).err
    nowhere = f"127.0.0.1:{free_port()}"
    failed = yoke("collab", "start", MLP, "--meeting", f"etcd://{nowhere}", "--out.dir", tmp_path / "x", code=4)
    assert "etcd does not answer" in failed.err and nowhere in failed.err
    assert starter.poll() is None
