"""Elastic jobs that lose a machine with several ranks, and with it parts of the state."""
import contextlib
import json
import re
import signal
import subprocess
import threading

import pytest
from conftest import ROOT, YOKE
from launching import clean_environment, wait_until
from two_machines import Machines, make_secret, why_not

MLP = ROOT / "configs/mlp_tiny.toml"
PATIENCE = 120  # seconds


class Node:
    """The launcher of one machine."""

    def __init__(self, machines, number, secret, folder, *words):
        self.process = machines.run(YOKE, number, secret, "--elastic", YOKE, "train", MLP, "--train.threads", 1, "--train.evaluate", "false", "--out.dir", folder,
                                    "--out.log_every", 1, "--checkpoint.every_steps", 0, "--steps", 10**7, "--data.batch_size", 24,
                                    *words, nproc=2, env=clean_environment(), stdout=subprocess.DEVNULL)
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
def test_a_machine_with_two_ranks_is_lost(tmp_path, words):
    if reason := why_not():
        pytest.skip(reason)
    with contextlib.ExitStack() as stack:
        try:
            machines = stack.enter_context(Machines())
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        secret, folder = make_secret(tmp_path / "secret"), tmp_path / "run"
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
