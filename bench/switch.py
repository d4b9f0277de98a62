"""Machines in miniature: network namespaces around a switch, every link shaped in both directions. Needs root, ip and tc."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = ROOT / "build/yoke"
sys.path.insert(0, str(ROOT / "tests"))
from two_machines import sh


class Switch:
    """Namespaces with the addresses 10.84.0.1, …, each with a link to one bridge. A context manager: they are gone at its end."""

    def __init__(self, machines, rate, queue):
        self.rate, self.queue = rate, queue
        self.hub = f"yoke-{os.getpid()}-hub"
        self.names = [f"yoke-{os.getpid()}-{index}" for index in range(machines)]

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        sh("ip", "netns", "add", self.hub)
        sh("ip", "-n", self.hub, "link", "add", "bridge", "type", "bridge")
        sh("ip", "-n", self.hub, "link", "set", "bridge", "up")
        for index, name in enumerate(self.names):
            port = f"port{index}"
            sh("ip", "netns", "add", name)
            sh("ip", "link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", self.hub)
            sh("ip", "-n", self.hub, "link", "set", port, "master", "bridge", "up")
            sh("ip", "-n", name, "addr", "add", f"10.84.0.{index + 1}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                sh("ip", "-n", name, "link", "set", device, "up")
            # What the machine sends, and what the switch sends to it.
            self._shape(name, "eth0")
            self._shape(self.hub, port)

    def _shape(self, name, device):
        sh("ip", "netns", "exec", name, "tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", self.rate, "burst", "64kb",
           "limit", self.queue)

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            sh("ip", "netns", "del", name, check=False)

    def run(self, secret, machines, *words):
        """Runs a job with one rank on each of the first `machines` machines. What rank 0 prints."""
        ranks = []
        for node in range(machines):
            command = ["ip", "netns", "exec", self.names[node], YOKE, "run", "--nnodes", machines, "--nproc-per-node", 1, "--node-rank",
                       node, "--rdzv-endpoint", "10.84.0.1:29571", "--rdzv-id", "switch", "--secret-file", secret, YOKE, *words]
            ranks.append(subprocess.Popen([str(w) for w in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT))
        answers = [rank.communicate(timeout=600) for rank in ranks]
        for rank, (_, error) in zip(ranks, answers):
            if rank.returncode != 0:
                sys.exit(error)
        return "\n".join(re.sub(r"^\[rank 0[^]]*\] ", "", line) for line in answers[0][0].splitlines())
