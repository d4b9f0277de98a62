"""Collaborative runs as users type them: peers join with a ticket, are killed, come back, and are refused."""
import json
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import ROOT, YOKE

MLP = ROOT / "configs/mlp_tiny.toml"
PATIENCE = 300  # seconds until a test gives up; everything takes a fraction of it
# On a busy machine a process may get no processor for seconds: no peer is left out for that.
PATIENT = ["--collab.timeout", "60s"]


class Peer:
    """A process of `yoke collab`, ended with the test at the latest."""

    def __init__(self, folder, *words, fault=""):
        self.folder = folder
        self.errors = open(f"{folder}.err", "w+")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("YOKE_")} | ({"YOKE_FAULT": fault} if fault else {})
        patient = [] if "--collab.timeout" in words else PATIENT
        self.process = subprocess.Popen([str(YOKE), "collab", *map(str, words), *patient, "--out.dir", str(folder), "--out.log_every", "1",
                                         "--train.threads", "1", "--json"], stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        cwd=ROOT, env=environment)

    def finish(self, code=0):
        out, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == code, f"exit {self.process.returncode}\n{self.said()}"
        return json.loads(out) if code == 0 else None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE)

    def said(self):
        self.errors.seek(0)
        return self.errors.read()


@pytest.fixture
def run(tmp_path, yoke):
    """Starts peers of one run; `watch` is what the meeting point says."""

    class Run:
        ticket = tmp_path / "ticket"
        peers = []

        def start(self, *words, target=256, steps=20):
            peer = Peer(tmp_path / "starter", "start", MLP, "--ticket-file", self.ticket, "--target-batch", target, "--steps", steps,
                        *words)
            self.peers.append(peer)
            self.until(lambda: self.ticket.exists() and self.ticket.read_text().endswith("\n"), peer)
            return peer

        def join(self, name, *words, fault=""):
            self.peers.append(Peer(tmp_path / name, "join", self.ticket, *words, fault=fault))
            return self.peers[-1]

        def watch(self):
            return yoke("collab", "watch", self.ticket, "--json").json

        def until(self, condition, peer):
            end = time.monotonic() + PATIENCE
            while not condition():
                assert peer.process.poll() is None, f"ended early\n{peer.said()}"
                assert time.monotonic() < end, f"nothing happened\n{peer.said()}"
                time.sleep(0.05)

        def until_epoch(self, epoch, peer):
            self.until(lambda: self.watch()["epoch"] >= epoch, peer)

        def present(self):
            return [peer for peer in self.watch()["peers"] if peer["state"] != "gone"]

    run = Run()
    yield run
    for peer in run.peers:
        if peer.process.poll() is None:
            peer.kill()


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_peer_is_killed_and_returns_and_the_run_goes_on(run, tmp_path):
    # Three peers are the quorum: the run pauses while one is away, however long it takes to return.
    small = ["--data.batch_size", 8]
    starter = run.start("--collab.min_peers", 3, *small, steps=60)
    doomed = run.join("doomed", "--collab.identity", tmp_path / "key", *small, fault="at=collab.lease,hit=20:kill")
    client = run.join("client", "--client-only", *small)
    assert doomed.process.wait(PATIENCE) == -signal.SIGKILL
    run.until(lambda: len(run.present()) == 2, starter)
    paused = run.watch()
    assert paused["epoch"] < 60
    assert ["its connection closed"] == [peer["why_dropped"] for peer in paused["peers"] if peer["state"] == "gone"]
    back = run.join("back", "--collab.identity", tmp_path / "key", *small)
    summary, through, returned = starter.finish(), client.finish(), back.finish()
    assert summary["steps"] == 60 and summary["over"] and returned["over"]
    assert returned["peer"] == [peer["id"] for peer in paused["peers"] if peer["state"] == "gone"][0] and returned["downloads"] >= 1
    assert summary["parameter_hash"] == through["parameter_hash"] == returned["parameter_hash"]
    curve = losses(tmp_path / "starter")
    assert len(curve) == 60 and sum(curve[-5:]) < sum(curve[:5])


def test_a_run_equals_one_device_on_the_same_samples(run, tmp_path, yoke):
    starter = run.start("--collab.min_peers", 2, "--data.batch_size", 5, target=64, steps=24)
    other = run.join("other", "--data.batch_size", 7)
    first, second = starter.finish(), other.finish()
    assert first["parameter_hash"] == second["parameter_hash"]
    assert first["samples"] + second["samples"] == 24 * 64
    yoke("train", MLP, "--data.batch_size", 64, "--steps", 24, "--out.log_every", 1, "--train.evaluate", "false", "--train.threads", 1,
         "--out.dir", tmp_path / "alone", "--resume", "never")
    assert losses(tmp_path / "starter") == pytest.approx(losses(tmp_path / "alone"), rel=1e-4)


def test_peers_on_a_grid_equal_one_device(run, tmp_path, yoke):
    starter = run.start("--collab.min_peers", 5, "--collab.group_size", 2, "--data.batch_size", 4, target=64, steps=12)
    others = [run.join(f"other-{size}", "--data.batch_size", size) for size in (5, 6, 7, 8)]
    summaries = [peer.finish() for peer in (starter, *others)]
    assert len({summary["parameter_hash"] for summary in summaries}) == 1
    assert sum(summary["samples"] for summary in summaries) == 12 * 64
    yoke("train", MLP, "--data.batch_size", 64, "--steps", 12, "--out.log_every", 1, "--train.evaluate", "false", "--train.threads", 1,
         "--out.dir", tmp_path / "alone", "--resume", "never")
    assert losses(tmp_path / "starter") == pytest.approx(losses(tmp_path / "alone"), rel=1e-4)


def test_a_peer_whose_upload_is_too_slow_computes_nothing(run):
    # 11 KB at 10 B/s: the others would wait 18 minutes for its gradient in every step.
    links = ["--collab.bandwidth", "1gbit"]
    starter = run.start("--collab.min_peers", 3, *links, steps=8)
    fast, slow = run.join("fast", *links), run.join("slow", "--collab.bandwidth", "10B/s,1gbit")
    summaries = [peer.finish() for peer in (starter, fast, slow)]
    assert summaries[0]["samples"] + summaries[1]["samples"] == 8 * 256 and summaries[2]["samples"] == 0
    assert summaries[2]["steps_taken_part"] > 0
    assert len({summary["parameter_hash"] for summary in summaries}) == 1
    assert "does not compute" in starter.said()


def test_watch_shows_peers_and_writes_a_page(run, tmp_path, yoke):
    starter = run.start("--collab.min_peers", 2)  # waits for a second peer
    run.until(lambda: len(run.present()) == 1, starter)
    status = run.watch()
    assert status["epoch"] == 0 and status["target_batch"] == 256 and status["accumulated"] == 0
    for key in ("id", "role", "samples_per_s", "upload", "download", "share", "state"):
        assert key in status["peers"][0]
    text = yoke("collab", "watch", run.ticket, "--once", "--html", tmp_path / "page.html").out
    assert "step 0 of 20" in text and "\033" not in text
    page = (tmp_path / "page.html").read_text()
    assert "location.reload()" in page and "<svg" in page
    run.join("second")
    assert starter.finish()["steps"] == 20


def test_a_peer_may_leave_after_some_steps(run):
    starter = run.start("--collab.min_peers", 2)
    assert run.join("guest", "--steps", 2).finish()["steps_taken_part"] == 2
    run.until(lambda: len(run.present()) == 1, starter)
    assert [peer["why_dropped"] for peer in run.watch()["peers"] if peer["state"] == "gone"] == ["left"]
    second = run.join("second")
    assert starter.finish()["steps"] == 20 and second.finish()["downloads"] >= 1


def test_who_does_not_fit_is_refused_by_name_and_disturbs_nobody(run, tmp_path, yoke):
    starter = run.start("--collab.min_peers", 2, "--collab.identity", tmp_path / "key")
    run.until(lambda: len(run.present()) == 1, starter)
    same = (MLP, "--collab.target_batch", 256, "--train.steps", 20)
    refused = [
        ((*same, "--model.sizes", "32,16,10"), 4, "model.sizes: the run has [32, 64, 10], this peer [32, 16, 10]"),
        ((*same, "--data.samples", 512), 4, "data.samples: the run has 1024, this peer 512"),
        ((*same, "--train.lr", 1), 4, "train.lr: the run has 0.05, this peer 1"),
        (("--collab.identity", tmp_path / "key"), 4, "already in this run as peer 0"),
        (("--train.precision", "fp16"), 2, "fp16"),
    ]
    for words, code, text in refused:
        result = yoke("collab", "join", run.ticket, *words, "--out.dir", tmp_path / "refused", code=code)
        assert text in result.err and len(result.err.splitlines()) <= 3, result.err
    ticket = run.ticket.read_text().strip()
    (tmp_path / "cut").write_text(ticket[:-5])
    assert "checksum" in yoke("collab", "join", tmp_path / "cut", code=2).err
    run.join("second")
    assert starter.finish()["steps"] == 20


def test_a_ticket_of_another_run_and_a_dead_meeting_point(run, tmp_path, yoke):
    first = run.start("--collab.min_peers", 2)
    old = run.ticket.read_text().strip()
    port = old.split("/")[1].rsplit(":", 1)[1]
    first.kill()
    run.ticket.unlink()
    second = run.start("--collab.min_peers", 2, "--meeting", f"127.0.0.1:{port}")
    result = yoke("collab", "watch", old, "--once", code=4)
    assert "belongs to another run" in result.err
    guest = run.join("guest", "--collab.quorum_timeout", "300ms")
    run.until(lambda: len(run.present()) == 2, second)
    second.kill()
    guest.finish(code=3)
    assert "lost the meeting point" in guest.said()


ENDLESS = 1_000_000  # steps


def test_a_run_continues_when_its_meeting_point_is_killed_and_started_again(run, tmp_path):
    small = ["--data.batch_size", 8, "--checkpoint.every_steps", 1, "--collab.min_peers", 2, "--collab.timeout", "5s"]
    starter = run.start(*small, steps=ENDLESS)
    other = run.join("other", "--data.batch_size", 8)
    run.until_epoch(3, starter)
    starter.kill()
    run.until(lambda: "this peer waits for it" in other.said(), other)
    reached = json.loads((tmp_path / "starter" / "meeting.json").read_text())["newest"]["epoch"]
    again = Peer(tmp_path / "starter", "start", MLP, "--continue", "--ticket-file", run.ticket, "--target-batch", 256, "--steps", ENDLESS, *small)
    run.peers.append(again)
    run.until(lambda: "the run continues from step" in again.said(), again)
    run.until_epoch(reached + 3, again)
    run.until(lambda: len(run.present()) == 2, other)
    for peer in (other, again):
        peer.process.send_signal(signal.SIGTERM)
    summaries = [json.loads(peer.process.communicate(timeout=PATIENCE)[0]) for peer in (other, again)]
    assert summaries[0]["reconnects"] >= 1


def test_a_run_continues_from_the_state_of_its_starter_when_nobody_is_left(run, tmp_path, yoke):
    small = ["--data.batch_size", 16, "--collab.timeout", "2s"]
    starter = run.start(*small, "--checkpoint.every_steps", 2, target=64, steps=ENDLESS)
    run.until_epoch(5, starter)
    starter.kill()
    steps = json.loads((tmp_path / "starter" / "meeting.json").read_text())["newest"]["epoch"] + 10
    again = Peer(tmp_path / "starter", "start", MLP, "--continue", "--ticket-file", run.ticket, "--target-batch", 64, "--steps", steps, *small)
    run.peers.append(again)
    summary = again.finish()
    assert summary["steps"] == steps and summary["over"] and 10 <= summary["steps_taken_part"] < steps
    yoke("train", MLP, "--data.batch_size", 64, "--steps", steps, "--out.log_every", 1, "--train.evaluate", "false", "--train.threads", 1,
         "--out.dir", tmp_path / "alone", "--resume", "never")
    assert losses(tmp_path / "starter")[-1] == pytest.approx(losses(tmp_path / "alone")[-1], rel=1e-4)


def test_continue_wants_the_ticket_and_the_folder_of_the_run(run, tmp_path, yoke):
    assert "--ticket-file is missing" in yoke("collab", "start", MLP, "--continue", "--out.dir", tmp_path / "x", code=2).err
    starter = run.start("--collab.min_peers", 2)
    starter.kill()
    (tmp_path / "starter" / "meeting.json").write_text(json.dumps({"run_id": "other", "newest": {"epoch": 1, "next_sample": 9},
                                                                   "previous": {"epoch": 0, "next_sample": 0}}))
    words = ["collab", "start", MLP, "--continue", "--ticket-file", run.ticket, "--out.dir", tmp_path / "starter"]
    assert "is of run 'other'" in yoke(*words, code=2).err
    (tmp_path / "starter" / "meeting.json").write_text("{}")
    assert "is not the record of a meeting point" in yoke(*words, code=2).err


def test_too_few_peers_end_the_run(run):
    starter = run.start("--collab.min_peers", 3, "--collab.quorum_timeout", "500ms")
    starter.finish(code=3)
    assert re.search("quorum lost: [01] of at least 3", starter.said())  # it may not have joined its own run yet


def test_with_three_liars_of_ten_the_loss_falls_and_the_grossest_is_excluded(run, tmp_path):
    small = ["--data.batch_size", 8]
    # The liars come first, so they take part from the first step on; noise may be excluded, too.
    starter = run.start("--collab.min_peers", 8, "--robust", "centered_clip", "--train.lr", 0.02, *small, target=160, steps=30)
    lies = [run.join(lie, *small, fault=f"at=collab.gradient:{lie}") for lie in ("flip", "noise", "scale")]
    honest = [run.join(f"honest-{i}", *small) for i in range(6)]
    lies[2].finish(code=4)
    assert "this peer is excluded from the run: for 10 steps its gradients" in lies[2].said()
    summaries = [peer.finish() for peer in (starter, *honest)]
    assert len({summary["parameter_hash"] for summary in summaries}) == 1
    curve = losses(tmp_path / "starter")
    assert len(curve) == 30 and sum(curve[-5:]) < 0.8 * sum(curve[:5])
    assert "is excluded from the run" in starter.said()
    for peer in honest:
        assert "this peer is excluded" not in peer.said()


def test_averaging_is_measured(yoke):
    result = yoke("bench", "average", "--peers", 3, "--bytes", "1MB", "--link", "100mbit,20mbit,5mbit", "--iterations", 2, "--json").json
    assert result["seconds"]["median"] > 0 and sum(result["shares"]) == pytest.approx(1)
