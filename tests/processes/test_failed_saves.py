"""A save that fails (a full disk, a damaged folder) does not end a run; a newest state that is not saved is told by the exit code."""
import json
import shutil
import re
import subprocess

import pytest
from conftest import ROOT, YOKE
from launching import clean_environment

MLP = ROOT / "configs/mlp_tiny.toml"
TRAIN = [YOKE, "train", MLP, "--checkpoint.every_steps", 20, "--train.threads", 1, "--no-train.evaluate", "--out.log_every", 10]
NOT_SAVED = 5


def train(folder, *words, fault="", steps=60, **options):
    extra = {"YOKE_FAULT": fault} if fault else {}
    words = [str(word) for word in [*TRAIN, "--steps", steps, "--out.dir", folder, *words]]
    return subprocess.run(words, capture_output=True, text=True, timeout=200, env=clean_environment(**extra), cwd=ROOT, **options)


def checkpoints(folder):
    return sorted(int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*[0-9]"))


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("nproc,rank", [(1, 0), (2, 0), (2, 1)])
def test_a_failed_save_is_a_warning_and_changes_nothing(tmp_path, nproc, rank):
    plain = train(tmp_path / "plain", "--nproc", nproc)
    assert plain.returncode == 0, plain.stderr
    faulty = train(tmp_path / "faulty", "--nproc", nproc, fault=f"rank={rank},at=checkpoint.write,hit=1:error")
    assert faulty.returncode == 0, faulty.stderr
    said = " ".join(faulty.stderr.split())
    assert "saving the checkpoint of step 20 failed" in said and "No space left on device" in said and "No earlier checkpoint" in said
    assert checkpoints(tmp_path / "faulty") == [40, 60]
    assert summary(tmp_path / "faulty")["parameter_hash"] == summary(tmp_path / "plain")["parameter_hash"]


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_newest_state_that_is_not_saved_is_told_by_the_exit_code(tmp_path, nproc):
    run = train(tmp_path / "run", "--nproc", nproc, fault="rank=0,at=checkpoint.commit,hit=3:error")
    said = " ".join(run.stderr.split())
    assert run.returncode == NOT_SAVED, run.stderr
    assert "the newest state (step 60) could not be saved" in said and "step-40" in said
    assert summary(tmp_path / "run")["steps"] == 60  # its records are complete
    again = train(tmp_path / "run", "--nproc", nproc)
    assert again.returncode == 0 and "step 40 of 60" in again.stderr
    assert checkpoints(tmp_path / "run") == [40, 60]


def test_parameter_servers_go_on_too(tmp_path):
    words = ["--nproc", 2, "--parallel.sync", "ps"]
    run = train(tmp_path / "once", *words, fault="rank=0,at=checkpoint.commit,hit=1:error")
    assert run.returncode == 0 and "saving the checkpoint of step 20 failed" in run.stderr, run.stderr
    run = train(tmp_path / "always", *words, fault="rank=0,at=checkpoint.commit:error")
    assert run.returncode == NOT_SAVED and "could not be saved" in run.stderr, run.stderr
    assert summary(tmp_path / "always")["steps"] == 60


def mounts():
    """The words that start a command where it may mount, or None."""
    for words in (["unshare", "-m"], ["unshare", "-Urm"]):
        if shutil.which("unshare") and subprocess.run([*words, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode == 0:
            return words
    return None


@pytest.mark.parametrize("nproc", [1, 2])
def test_a_disk_that_is_really_full(tmp_path, nproc):
    inside = mounts()
    if not inside:
        pytest.skip("nobody may mount a file system here")
    large = ["--nproc", nproc, "--model.sizes", "32,512,512,10"]  # beside its checkpoints other files are small
    probe = train(tmp_path / "probe", *large, steps=20)
    assert probe.returncode == 0, probe.stderr
    one = sum(file.stat().st_blocks * 512 for file in (tmp_path / "probe/checkpoints/step-20").iterdir())
    disk = tmp_path / "disk"
    disk.mkdir()
    words = " ".join(f"'{word}'" for word in [*TRAIN, "--steps", 60, "--out.dir", disk / "run", *large])
    # Room for one checkpoint and a half; then, with more room, the same command again.
    script = f"""
        mount -t tmpfs -o size={one * 3 // 2 + 131072} none '{disk}' || exit 99
        {words}; echo "first $?"
        ls '{disk}/run/checkpoints'
        mount -o remount,size=256m '{disk}'
        {words}; echo "second $?"
        ls '{disk}/run/checkpoints'; wc -l < '{disk}/run/metrics.jsonl'
    """
    run = subprocess.run([*inside, "bash", "-c", script], capture_output=True, text=True, timeout=300, env=clean_environment(), cwd=ROOT)
    said = " ".join(run.stderr.split())
    assert f"first {NOT_SAVED}" in run.stdout and "second 0" in run.stdout, run.stdout + run.stderr
    # How many fit depends on the sizes of the other files: one or two.
    assert re.search(r"saving the checkpoint of step (40|60) failed", said) and "No space left on device" in said
    assert "the newest state (step 60) could not be saved" in said and re.search(r"step (20|40) of 60", said)
    after_first, after_second = run.stdout.split("first")[1].split("second")
    assert re.search(r"step-(20|40)", after_first) and "step-60" not in after_first.split("\n", 1)[1].split("mlp")[0]
    assert "step-60" in after_second
    assert run.stdout.rstrip().endswith("6")  # one record for each ten steps
