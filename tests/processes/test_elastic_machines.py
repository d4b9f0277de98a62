"""Elastic jobs that lose a machine with several ranks, and with it parts of the state, or a link between two."""
import contextlib
import json
import re
import signal
import subprocess
import threading

import pytest
from conftest import ROOT, YOKE
from launching import clean_environment, wait_until
from two_machines import sh

MLP = ROOT / "configs/mlp_tiny.toml"
PATIENCE = 120  # seconds


class Node:
    """The launcher of one machine."""

    def __init__(self, machines, number, secret, folder, *words, join_timeout=60, nproc=2):
        self.process = machines.run(YOKE, number, secret, "--elastic", "--join-timeout", join_timeout, YOKE, "train", MLP, "--train.threads", 1, "--train.evaluate", "false", "--out.dir", folder,
                                    "--out.log_every", 1, "--checkpoint.every_steps", 0, "--steps", 10**7, "--data.batch_size", 24,
                                    *words, nproc=nproc, env=clean_environment(), stdout=subprocess.DEVNULL)
        self.lines = []
        self.reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True)
        self.reader.start()

    def log(self):
        return "".join(self.lines)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        self.reader.join(PATIENCE)


@pytest.mark.parametrize("words", [
    ["--parallel.zero", 1],
    ["--parallel.zero", 3],
    ["--parallel.pipeline", 4, "--parallel.data", 1, "--model.sizes", "[32, 48, 48, 48, 48, 10]"],
])
def test_a_machine_with_two_ranks_is_lost(machines, secret, tmp_path, words):
    folder = tmp_path / "run"
    with contextlib.ExitStack() as stack:
        nodes = [Node(machines, number, secret, folder, *words) for number in range(2)]
        for node in nodes:
            stack.callback(node.end)

        def until(condition):
            wait_until(lambda: condition() or nodes[0].process.poll() is not None, PATIENCE, nodes[0].log)
            assert nodes[0].process.poll() is None, nodes[0].log()

        until(lambda: (folder / "metrics.jsonl").exists() and (folder / "metrics.jsonl").read_text().count("\n") > 20)
        nodes[1].process.kill()  # its ranks end with it
        until(lambda: re.search(r"epoch [1-9]: step \d+ finished", nodes[0].log()))
        nodes[0].process.send_signal(signal.SIGTERM)
        assert nodes[0].process.wait(PATIENCE) == 128 + signal.SIGTERM, nodes[0].log()
        nodes[0].reader.join(PATIENCE)
        assert "rebuilt from" in nodes[0].log() and "go back to" not in nodes[0].log(), nodes[0].log()
    elastic = json.loads((folder / "summary.json").read_text())["elastic"]
    assert elastic["losses"] == 2 and elastic["repeated"] <= 1
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.parametrize("deaf", [None, 1], ids=["both ways", "second hears nothing"])
def test_a_cut_link_leaves_one_side_that_continues(machines, secret, tmp_path, deaf):
    """The side with the coordinator; the other ends, is started again once the link is whole, and joins."""
    folder = tmp_path / "run"
    with contextlib.ExitStack() as stack:
        def start(number):
            node = Node(machines, number, secret, folder, "--slowdown.law", "exp:5ms", join_timeout=20)
            stack.callback(node.end)
            return node

        head, other = start(0), start(1)

        def until(condition):
            wait_until(lambda: condition() or head.process.poll() is not None, PATIENCE, lambda: head.log() + other.log())
            assert head.process.poll() is None, head.log()

        until(lambda: len(steps_of(folder)) > 20)
        cut(machines, deaf)
        until(lambda: re.search(r"epoch 1: step \d+ finished", head.log()))
        assert other.process.wait(PATIENCE) != 0 and "the coordinator (rank 0 or the launcher)" in other.log(), other.log()
        assert "ranks continue" not in other.log()
        heal(machines, deaf)
        again = start(1)
        until(lambda: "4 ranks continue" in head.log())
        most = len(steps_of(folder)) + 20
        until(lambda: len(steps_of(folder)) > most)
        for node, code in ((again, 0), (head, 128 + signal.SIGTERM)):  # the host of the coordinator last
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(PATIENCE) == code, node.log()
    elastic = json.loads((folder / "summary.json").read_text())["elastic"]
    assert elastic["losses"] == 2 and elastic["joins"] == 2 and elastic["repeated"] <= 1
    assert steps_of(folder) == list(range(1, len(steps_of(folder)) + 1))


def cut(machines, deaf):
    if deaf is None:
        sh("ip", "-n", machines.names[0], "link", "set", "eth0", "down")
    else:
        machines.drop(deaf, "iifname eth0 drop")


def heal(machines, deaf):
    if deaf is None:
        sh("ip", "-n", machines.names[0], "link", "set", "eth0", "up")
    else:
        machines.heal(deaf)


@pytest.mark.parametrize("machines", [3], indirect=True)
@pytest.mark.parametrize("heals", [False, True], ids=["lasts", "heals"])
def test_of_two_machines_that_do_not_reach_each_other_one_leaves(machines, secret, tmp_path, heals):
    """Both reach the first one, with the coordinator. If the link heals before it is checked, nobody leaves."""
    folder = tmp_path / "run"
    with contextlib.ExitStack() as stack:
        nodes = [Node(machines, number, secret, folder, "--slowdown.law", "exp:5ms", nproc=1) for number in range(3)]
        for node in nodes:
            stack.callback(node.end)
        head, second, third = nodes

        def until(condition):
            wait_until(lambda: condition() or head.process.poll() is not None, PATIENCE, lambda: "".join(node.log() for node in nodes))
            assert head.process.poll() is None, head.log()

        until(lambda: len(steps_of(folder)) > 20)
        machines.drop(1, "ip saddr 10.83.0.3 drop")
        if heals:
            until(lambda: re.search(r"epoch 1: 3 ranks, after .*has acknowledged nothing", head.log()))
            machines.heal(1)
            until(lambda: re.search(r"epoch 1: step \d+ finished", head.log()))
            assert "epoch 1: all machines reach each other" in head.log() and "leaves" not in head.log()
        else:
            until(lambda: re.search(r"epoch 2: step \d+ finished", head.log()))
            assert third.process.wait(PATIENCE) != 0
            told = r"rank 1 on \S+ \(10\.83\.0\.2:\d+\) and rank 2 on \S+ \(10\.83\.0\.3:\d+\) cannot reach each other"
            third.reader.join(PATIENCE)
            assert re.search(rf"{told}: rank 2 leaves", head.log()), head.log()
            assert re.search(told, third.log()) and "evicted" in third.log(), third.log()
        for node, code in (*((one, 0) for one in (second, third)[:1 + heals]), (head, 128 + signal.SIGTERM)):
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(PATIENCE) == code, node.log()
    elastic = json.loads((folder / "summary.json").read_text())["elastic"]
    assert elastic["losses"] == (0 if heals else 1) and elastic["repeated"] <= 1
    assert steps_of(folder) == list(range(1, len(steps_of(folder)) + 1))


def steps_of(folder):
    file = folder / "metrics.jsonl"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []  # the last one may not be complete
    return [json.loads(line)["step"] for line in lines]
