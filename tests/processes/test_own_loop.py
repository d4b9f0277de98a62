"""yoke::Run in loops of one's own: killed with -9 at named points and started again, the weights are the same bits."""
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import YOKE

BUILD = YOKE.parent
OWN = [BUILD / "example_own_loop"]
DDP = [YOKE, "run", "--nproc", "2", BUILD / "example_ddp_own_loop"]


def program(ranks, *words):
    def command(folder):
        return [YOKE, "run", "--nproc", str(ranks), BUILD / "yoke_own_loop_program", folder, *map(str, words)]
    return command


def run(command, code=0, fault=None):
    environment = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": "/tmp"}
    if fault:
        environment["YOKE_FAULT"] = fault
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, env=environment)
    if code is not None:
        assert done.returncode == code, done.stdout + done.stderr
    return done


def last_line(done):
    return done.stdout.strip().splitlines()[-1].removeprefix("[rank 0] ")


def weights(done):
    return re.search(r"[0-9a-f]{32}", last_line(done)).group(0)


def checkpoints(folder):
    return sorted(int(path.name.split("-")[1]) for path in (pathlib.Path(folder) / "checkpoints").glob("step-*[0-9]"))


@pytest.mark.parametrize("name,command,faults", [
    ("own_loop", OWN, ["at=checkpoint.write,hit=1:kill", "at=checkpoint.write,hit=4:kill", "at=checkpoint.commit,hit=2:kill"]),
    ("ddp_own_loop", DDP, ["rank=0,at=checkpoint.commit,hit=1:kill", "rank=1,step=33,at=ddp.bucket.sent:kill",
                           "rank=0,at=checkpoint.write,hit=3:kill", "rank=0,step=101,at=collective.begin:kill"]),
], ids=["own_loop", "ddp_own_loop"])
def test_examples_killed_and_started_again_end_with_the_same_bits(tmp_path, name, command, faults):
    whole = run([*command, tmp_path / "whole"])
    for fault in faults:
        killed = run([*command, tmp_path / "killed"], code=None, fault=fault)
        assert killed.returncode != 0, f"{fault} did not kill it: {killed.stdout}{killed.stderr}"
    resumed = run([*command, tmp_path / "killed"])
    assert weights(resumed) == weights(whole)
    assert "resuming from" in resumed.stderr
    # Started once more there is nothing left to do, and nothing changes.
    assert weights(run([*command, tmp_path / "killed"])) == weights(whole)


@pytest.mark.parametrize("words", [(), ("sharded",), ("torch",), ("torch", "sharded")], ids=lambda words: " ".join(words) or "plain")
def test_everything_a_run_tracks_survives_on_two_ranks(tmp_path, words):
    command = program(2, 30, *words)
    whole = run(command(tmp_path / "whole"))
    for fault in ("rank=0,at=checkpoint.commit,hit=2:kill", "rank=1,step=15,at=ddp.bucket.sent:kill"):
        assert run(command(tmp_path / "killed"), code=None, fault=fault).returncode != 0
    assert last_line(run(command(tmp_path / "killed"))) == last_line(whole)
    written = {path.name for path in (tmp_path / "whole/checkpoints/step-30").iterdir()}
    assert ("model-00002-of-00002.safetensors" in written) == ("sharded" in words)


def test_a_signal_to_one_rank_stops_all_after_the_same_step_with_a_checkpoint(tmp_path):
    whole = run(program(2, 20)(tmp_path / "whole"))
    stopped = run(program(2, 20, "signal=7")(tmp_path / "stopped"), code=None)
    assert stopped.returncode != 0
    assert last_line(stopped).startswith("7 ") and "after step 7; run it again to resume" in stopped.stderr
    assert checkpoints(tmp_path / "stopped")[-1] == 7
    assert last_line(run(program(2, 20)(tmp_path / "stopped"))) == last_line(whole)


@pytest.mark.parametrize("words", [(), ("sharded",)], ids=["one writer", "sharded"])
def test_a_run_resumes_on_another_number_of_ranks(tmp_path, words):
    run(program(2, 10, *words)(tmp_path / "run"))
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    for ranks in (1, 3):
        done = run(program(ranks, 14, *words)(tmp_path / "run"))
        assert last_line(done).startswith("14 ") and f"is of 2 ranks; resuming with {ranks}" in done.stderr
        shutil.rmtree(tmp_path / "run")
        shutil.copytree(tmp_path / "copy", tmp_path / "run")


def test_two_runs_in_one_folder_are_refused_once_for_all_ranks(tmp_path):
    (tmp_path / "file").write_text("")
    refused = run(program(2, 4)(tmp_path / "file/run"), code=2)
    assert "yoke::Run .dir" in refused.stderr and "cannot make the folder" in refused.stderr


def test_the_weights_are_plain_and_other_commands_read_them(tmp_path, yoke):
    run(program(2, 4, "sharded")(tmp_path / "run"))
    assert yoke("ckpt", "verify", tmp_path / "run", "--json").json["ok"]
    yoke("ckpt", "export", tmp_path / "run", "-o", tmp_path / "w.safetensors")
    from safetensors import safe_open
    with safe_open(tmp_path / "w.safetensors", "pt") as weights_file:
        assert {"0.weight", "1.running_mean", "3.bias"} <= set(weights_file.keys())
