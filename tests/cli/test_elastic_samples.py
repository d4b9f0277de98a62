"""Which samples an elastic job has used, by their numbers, and pipelines that grow."""
import json
import signal
import struct

import pytest
from conftest import ROOT
from test_elastic import kill, records, summary_of
from test_elastic_growth import Launcher, key, port, wait_for_step  # noqa: F401

SAMPLES, RANKS, BATCH = 480, 4, 6
RATE = 0.01


@pytest.fixture
def numbered(tmp_path):
    """Sample i has feature i and no other: how often it was used shows in weight i."""
    (tmp_path / "data").mkdir()
    lines = "".join(f"1 {i + 1}:1\n" for i in range(SAMPLES))
    for name in ("train.libsvm", "test.libsvm"):
        (tmp_path / "data" / name).write_text(lines)
    recipe = tmp_path / "numbered.toml"
    recipe.write_text(f"""[model]
name = "sparse_lr"
features = {SAMPLES}
[data]
name = "libsvm"
dir = "{tmp_path / 'data'}"
batch_size = {BATCH}
[train]
optimizer = "sgd"
lr = {RATE}
momentum = 0.0
""")
    return recipe


def weights_of(yoke, folder):
    """One of each sample, of the last checkpoint."""
    yoke("ckpt", "export", folder, "--output", folder / "weights.safetensors")
    raw = (folder / "weights.safetensors").read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    head, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    name = next(name for name, one in head.items() if name != "__metadata__" and max(one["shape"]) == SAMPLES)
    begin, end = head[name]["data_offsets"]
    return struct.unpack(f"<{SAMPLES}f", data[begin:end])


@pytest.mark.parametrize("epochs,faults", [
    (1, []),
    (1, [kill(2, 5), kill(0, 13)]),
    (2, [kill(1, 3), "rank=3,step=12,at=comm.collective.begin:kill", kill(0, 31)]),
])
def test_every_sample_is_used_once_an_epoch_whoever_is_killed(yoke, tmp_path, numbered, epochs, faults):
    common = ["train", numbered, "--train.threads", 1, "--json", "-q", "--train.evaluate", "false"]
    yoke(*common, "--out.dir", tmp_path / "start", "--steps", 1, "--train.lr", 1e-20)
    yoke(*common, "--out.dir", tmp_path / "run", "--elastic", "--nproc", RANKS, "--train.epochs", epochs, "--parallel.data", 0,
         env={"YOKE_FAULT": "; ".join(faults)} if faults else {})
    assert summary_of(tmp_path / "run")["elastic"]["losses"] == len(faults)
    # The gradient of a sample is sigmoid(-score) / (global batch), and the score stays near 0.
    once = RATE * 0.5 / (RANKS * BATCH)
    uses = [(end - start) / once for start, end in zip(weights_of(yoke, tmp_path / "start"), weights_of(yoke, tmp_path / "run"))]
    assert [round(use) for use in uses] == [epochs] * SAMPLES


STAGES = ["--model.sizes", "[32, 48, 48, 48, 10]", "--parallel.pipeline", 2, "--parallel.data", 0, "--out.log_every", 1, "--train.deterministic"]


@pytest.mark.parametrize("more,layout", [(1, "pipeline=2 on 3 ranks, 1 of them spare"), (2, "pipeline=2,data=2 on 4 ranks")])
def test_ranks_join_a_running_pipeline(tmp_path, port, key, yoke, more, layout):  # noqa: F811
    folder = tmp_path / "run"
    words = [*STAGES, "--steps", 10**7, "--slowdown.law", "none"]
    with Launcher(port, key, folder, "--elastic", "--nproc", 2, words=words) as job:
        wait_for_step(job, folder, 20)
        with Launcher(port, key, folder, "--join", "--nproc", more, words=words) as other:
            number = job.wait_for(rf"epoch (\d+): {layout}")[1]
            job.wait_for(rf"epoch {number}: step \d+ finished")
            wait_for_step(job, folder, records(folder)[-1]["step"] + 20)
            for launcher in (job, other):
                launcher.process.send_signal(signal.SIGTERM)
            assert (job.end(), other.end()) == (143, 143), job.log + other.log
    summary, rows = summary_of(folder), records(folder)
    assert summary["world_size"] == 2 + more and summary["elastic"]["joins"] == more and summary["elastic"]["losses"] == 0
    assert [row["step"] for row in rows] == list(range(1, len(rows) + 1))
    # Batch and result are those of the two stages alone.
    yoke("train", ROOT / "configs/mlp_tiny.toml", *STAGES, "--nproc", 2, "--steps", 60, "--data.batch_size", 24, "--train.threads", 1, "--train.evaluate", "false",
         "--out.dir", tmp_path / "plain", "--json", "-q")
    plain = records(tmp_path / "plain")
    assert [row["samples"] for row in rows[:60]] == [row["samples"] for row in plain]
    assert [row["loss"] for row in rows[:60]] == pytest.approx([row["loss"] for row in plain], rel=1e-3)
