"""Stop a run in any way and start the same command again: the result is bit-identical to an uninterrupted run."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from conftest import ROOT, YOKE

RECIPES = {
    "mlp": ["configs/mlp_tiny.toml", "--steps", "400", "--train.schedule", "cosine", "--train.warmup_steps", "20"],
    "gpt2 with dropout and adamw": ["configs/gpt2_tiny.toml", "--steps", "60", "--model.dropout", "0.1",
                                    "--train.optimizer", "adamw", "--train.clip_norm", "1"],
    "lenet over epochs, accumulating": ["configs/lenet_fashion.toml", "--data.name", "synthetic", "--data.samples", "640",
                                        "--steps", "60", "--train.accumulate", "2", "--train.optimizer", "adagrad"],
    "gpt2 with dropout on two ranks": ["configs/gpt2_tiny.toml", "--nproc", "2", "--train.threads", "1", "--steps", "60",
                                       "--model.dropout", "0.1", "--data.batch_size", "8"],
    "mlp with spread state on two ranks": ["configs/mlp_tiny.toml", "--nproc", "2", "--train.threads", "1", "--steps", "200",
                                           "--train.optimizer", "adamw", "--parallel.zero", "2"],
    "mlp in fp16 with a loss scale": ["configs/mlp_tiny.toml", "--steps", "120", "--train.precision", "fp16"],
}


def start(words, run, cache):
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen([str(YOKE), "train", *words, "--out.dir", str(run), "--checkpoint.every_steps", "7",
                             "--out.log_every", "1", "--json", "-q"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT)


def finish(process, code=0):
    out, err = process.communicate(timeout=240)
    assert process.returncode == code, err
    return out


def wait_for_steps(run, process, steps):
    """Until `steps` steps stand in metrics.jsonl, or the process is done."""
    deadline = time.monotonic() + 120
    path = run / "metrics.jsonl"
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_text().count("\n") >= steps:
            return True
        time.sleep(0.005)
    return process.poll() is None


@pytest.mark.parametrize("name", RECIPES)
def test_killed_and_started_again_is_bit_identical(name, tmp_path, cache_folder):
    words = RECIPES[name]
    whole = json.loads(finish(start(words, tmp_path / "whole", cache_folder)))
    run = tmp_path / "killed"
    kills = 0
    for after in (3, 10, 16, 31):
        process = start(words, run, cache_folder)
        if wait_for_steps(run, process, after):
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.communicate(timeout=240)
    resumed = json.loads(finish(start(words, run, cache_folder)))
    assert kills > 0
    assert resumed["steps"] == whole["steps"]
    assert resumed["parameter_hash"] == whole["parameter_hash"]
    assert resumed["final_loss"] == whole["final_loss"]
    steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, whole["steps"] + 1))
    losses = lambda folder: [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert losses(run) == losses(tmp_path / "whole")


def ranks_of(process):
    """Process ids of the ranks that a launcher has started, by rank."""
    ranks = {}
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            if os.readlink(f"/proc/{pid}/exe").endswith("yoke-torch"):
                words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                ranks.update({int(word[5:]): int(pid) for word in words if word.startswith(b"RANK=")})
    return ranks


@pytest.mark.parametrize("option", [[], ["--parallel.zero", "2"], ["--ddp.hook", "int8"], ["--parallel.backend", "tcp"]])
def test_a_rank_killed_while_it_trains_ends_the_job_by_name_and_loses_nothing(option, tmp_path, cache_folder):
    words = ["configs/gpt2_tiny.toml", "--nproc", "2", "--train.threads", "1", "--steps", "100000", *option]
    run = tmp_path / "run"
    process = start(words, run, cache_folder)
    try:
        assert wait_for_steps(run, process, 20)
        ranks = ranks_of(process)
        assert sorted(ranks) == [0, 1]
        os.kill(ranks[1], signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 137, err
    assert "rank 1" in err and "SIGKILL" in err
    saved = max(int(p.name.split("-")[1]) for p in (run / "checkpoints").glob("step-*[0-9]"))
    verdict = subprocess.run([str(YOKE), "ckpt", "verify", str(run), "--json"], capture_output=True, text=True, timeout=60)
    good = [row["step"] for row in json.loads(verdict.stdout)["checkpoints"] if row["ok"]]
    assert saved in good and saved >= 14


@pytest.fixture(scope="module")
def whole_mlp(tmp_path_factory, cache_folder):
    return json.loads(finish(start(RECIPES["mlp"], tmp_path_factory.mktemp("mlp") / "whole", cache_folder)))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGXCPU])
def test_asked_to_stop_it_saves_and_goes_on(number, whole_mlp, tmp_path, cache_folder):
    words = RECIPES["mlp"]
    run = tmp_path / "stopped"
    process = start(words, run, cache_folder)
    assert wait_for_steps(run, process, 12)
    # Schedulers warn several times.
    for _ in range(1 if number in (signal.SIGINT, signal.SIGTERM) else 3):
        process.send_signal(number)
    finish(process, code=128 + number)
    saved = max(int(p.name.split("-")[1]) for p in (run / "checkpoints").glob("step-*[0-9]"))
    assert saved == len((run / "metrics.jsonl").read_text().splitlines())
    resumed = json.loads(finish(start(words, run, cache_folder)))
    assert resumed["resumed_from"] == saved
    assert resumed["parameter_hash"] == whole_mlp["parameter_hash"]


def test_a_finished_run_keeps_its_result(tmp_path, cache_folder):
    run = tmp_path / "run"
    files = lambda: {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    first = json.loads(finish(start(RECIPES["mlp"], run, cache_folder)))
    before = files()
    fewer = [word if word != "400" else "300" for word in RECIPES["mlp"]]
    for words in (RECIPES["mlp"], fewer, [*fewer, "--nproc", "2"]):
        assert json.loads(finish(start(words, run, cache_folder))) == first
    assert {p: b for p, b in files().items() if p.name != ".lock"} == {p: b for p, b in before.items() if p.name != ".lock"}
    process = start([*RECIPES["mlp"], "--init", str(tmp_path / "missing.safetensors")], run, cache_folder)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 2 and "missing.safetensors" in err
    more = [word if word != "400" else "410" for word in RECIPES["mlp"]]
    process = start([*more, "--init", str(run), "--train.lr", "0.01", "--train.seed", "9"], run, cache_folder)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0 and "is not used: the run resumes from" in err
    assert "train.lr 0.05 -> 0.01" in err and "train.seed 1 -> 9" in err and "train.steps" not in err


def test_a_second_run_in_the_same_folder_is_refused(tmp_path, cache_folder):
    words = ["configs/mlp_tiny.toml", "--steps", "1000000"]
    run = tmp_path / "run"
    first = start(words, run, cache_folder)
    try:
        assert wait_for_steps(run, first, 20)
        for more in ([], ["--resume", "never"], ["--nproc", "2"]):
            second = start([*words, *more], run, cache_folder)
            out, err = second.communicate(timeout=60)
            assert second.returncode == 2, err
            assert f"in use by process {first.pid} on" in " ".join(err.replace("|", " ").split())
        assert first.poll() is None
        assert not list((run / "checkpoints").glob("*.abandoned"))
    finally:
        first.kill()
        first.communicate(timeout=60)
    done = (run / "metrics.jsonl").read_text().count("\n")
    third = start(words, run, cache_folder)  # the lock died with its holder
    assert wait_for_steps(run, third, done + 20)
    third.send_signal(signal.SIGTERM)
    finish(third, code=143)


WORLDS = {
    "one device": ["--data.batch_size", "12"],
    "three replicas": ["--nproc", "3", "--data.batch_size", "4"],
    "spread state": ["--nproc", "2", "--data.batch_size", "6", "--parallel.zero", "2"],
    "accumulating": ["--data.batch_size", "3", "--train.accumulate", "4"],
    "unequal shares": ["--nproc", "2", "--data.batch_size", "6", "--parallel.split", "1:2"],
    "threads": ["--data.batch_size", "4", "--parallel.sync", "threads", "--parallel.data", "3"],
    "stages": ["--nproc", "2", "--data.batch_size", "12", "--parallel.pipeline", "2"],
    "servers": ["--nproc", "3", "--data.batch_size", "4", "--parallel.sync", "ps", "--ps.servers", "1"],
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache_folder):
    """A run of two replicas, whole and stopped on the way; 252 samples in batches of 12 are 21 steps an epoch."""
    folder = tmp_path_factory.mktemp("undisturbed")
    words = ["configs/mlp_tiny.toml", "--nproc", "2", "--train.threads", "1", "--data.batch_size", "6", *SLOW]
    finish(start([*words, "--steps", "30"], folder / "whole", cache_folder))
    finish(start([*words, "--steps", "14"], folder / "stopped", cache_folder))
    return folder


SLOW = ["--data.samples", "252", "--train.lr", "0.01", "--train.momentum", "0", "--no-train.evaluate"]


def losses_of(run):
    return {row["step"]: row["loss"] for row in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())}


@pytest.mark.parametrize("world", WORLDS)
def test_another_world_reads_the_samples_that_come_next(world, undisturbed, tmp_path, cache_folder):
    run = tmp_path / "run"
    shutil.copytree(undisturbed / "stopped", run)
    finish(start(["configs/mlp_tiny.toml", "--train.threads", "1", *WORLDS[world], *SLOW, "--steps", "30"], run, cache_folder))
    expected, ours = losses_of(undisturbed / "whole"), losses_of(run)
    assert [ours[step] for step in range(15, 31)] == pytest.approx([expected[step] for step in range(15, 31)], rel=1e-4)


def test_a_flipped_bit_falls_back_to_the_checkpoint_before(tmp_path, cache_folder):
    words = RECIPES["mlp"]
    run = tmp_path / "run"
    whole = json.loads(finish(start(words, run, cache_folder)))
    newest = run / "checkpoints/step-400"
    weights = next(newest.glob("model*.safetensors"))
    data = bytearray(weights.read_bytes())
    data[-5] ^= 0x10
    weights.write_bytes(data)
    process = start(words, run, cache_folder)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0
    assert "step-400" in err
    assert json.loads(out)["parameter_hash"] == whole["parameter_hash"]
    assert json.loads(out)["resumed_from"] == 399
