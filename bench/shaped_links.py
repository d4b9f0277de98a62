#!/usr/bin/env python3
"""Data parallel training over a slow link: what overlap hides, what compression hooks bring.

Two network namespaces joined by a link shaped to 1 Gbit/s and to 200 Mbit/s, one rank with one thread in each. Needs root, ip and tc.

    sudo bench/shaped_links.py [--steps 12] [--model configs/vgg_small.toml] [--batch 16]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
YOKE = ROOT / "build/yoke"
PORT = 29581


def sh(*words, check=True):
    return subprocess.run([str(w) for w in words], check=check, capture_output=True, text=True)


class Link:
    """Two namespaces and a link of `rate` between them."""

    def __init__(self, rate):
        self.names = [f"yoke-bench-{os.getpid()}-{end}" for end in "ab"]
        for name in self.names:
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        sh("ip", "link", "add", "eth0", "netns", self.names[0], "type", "veth", "peer", "name", "eth0", "netns", self.names[1])
        for index, name in enumerate(self.names):
            sh("ip", "-n", name, "addr", "add", f"10.84.0.{index + 1}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")
            sh("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "256kb",
               "latency", "50ms")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for name in self.names:
            sh("ip", "netns", "del", name, check=False)

    def train(self, folder, *words):
        secret = folder / "secret"
        if not secret.exists():
            secret.write_bytes(os.urandom(32))
            secret.chmod(0o600)
        run = pathlib.Path(tempfile.mkdtemp(dir=folder))
        nodes = [subprocess.Popen([str(w) for w in (
            "ip", "netns", "exec", self.names[node], YOKE, "run", "--nnodes", 2, "--nproc-per-node", 1, "--node-rank", node,
            "--rdzv-endpoint", f"10.84.0.1:{PORT}", "--rdzv-id", "bench", "--secret-file", secret,
            YOKE, "train", *words, "--train.threads", 1, "--out.dir", run, "--out.log_every", 1, "--train.evaluate", "false", "-q")],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT) for node in range(2)]
        for node in nodes:
            error = node.communicate(timeout=600)[1]
            assert node.returncode == 0, error
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][4:]
        middle = lambda get: statistics.median(get(record) for record in records)
        return {"step": middle(lambda r: sum(r["split"].values())), "comm": middle(lambda r: r["comm_seconds"]),
                "exposed": middle(lambda r: r["split"]["communication"]), "backward": middle(lambda r: r["split"]["backward"])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--model", default="configs/vgg_small.toml")
    parser.add_argument("--batch", type=int, default=16)
    arguments = parser.parse_args()
    common = [arguments.model, "--data.batch_size", arguments.batch, "--steps", arguments.steps]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        print("| link | how | step | communication | waited for | hidden of what can be hidden | against none |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for rate, hooks in [("1gbit", ["none", "delay"]), ("200mbit", ["none", "fp16", "int8", "powersgd:2", "topk:0.01"])]:
            with Link(rate) as link:
                plain = None
                for hook in hooks:
                    words = ["--ddp.delay_allreduce"] if hook == "delay" else ["--ddp.hook", hook]
                    seen = link.train(folder, *common, *words)
                    plain = plain or seen["step"]
                    # Communication can hide behind backward, and behind no more than it.
                    hidden = (seen["comm"] - seen["exposed"]) / min(seen["comm"], seen["backward"])
                    print(f"| {rate} | {hook} | {seen['step']:.3f} s | {seen['comm']:.3f} s | {seen['exposed']:.3f} s | "
                          f"{100 * max(0, hidden):.0f} % | {plain / seen['step']:.2f}x |", flush=True)


if __name__ == "__main__":
    main()
