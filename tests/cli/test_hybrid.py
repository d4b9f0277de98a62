"""`parallel.sync = "hybrid"`: workers and spare ranks sum gradients."""
import pytest
from conftest import ROOT

LENET = ROOT / "configs/lenet_fashion.toml"
COMMON = ["--data.name", "synthetic", "--data.batch_size", 8, "--train.schedule", "constant", "--train.threads", 1, "--train.evaluate",
          "false", "--json", "-q"]


def train(yoke, folder, *words, ranks=2, code=0, **more):
    return yoke("train", LENET, "--nproc", ranks, "--out.dir", folder, *COMMON, *words, code=code, **more)


def hybrid(yoke, folder, *words, spares=1, **more):
    return train(yoke, folder, "--parallel.sync", "hybrid", "--hybrid.servers", spares, *words, **more)


# Two numbers have one sum, whoever adds them.
def test_two_workers_train_as_with_an_all_reduce(yoke, tmp_path):
    plain = train(yoke, tmp_path / "plain", "--steps", 4).json
    for spares in (0, 1, 2):
        summed = hybrid(yoke, tmp_path / str(spares), "--steps", 4, spares=spares).json
        assert summed["parameter_hash"] == plain["parameter_hash"] and summed["world_size"] == 2


def test_a_run_resumes_to_the_bit_also_without_spare_ranks(yoke, tmp_path):
    whole = hybrid(yoke, tmp_path / "whole", "--steps", 6).json
    hybrid(yoke, tmp_path / "run", "--steps", 3)
    resumed = train(yoke, tmp_path / "run", "--steps", 6).json
    assert resumed["resumed_from"] == 3 and resumed["parameter_hash"] == whole["parameter_hash"]


def test_hooks_and_accumulation_work_as_ever(yoke, tmp_path):
    for name, words in {"fp16": ["--ddp.hook", "fp16"], "int8": ["--ddp.hook", "int8"],
                        "fp16 alone": ["--train.precision", "fp16"], "both": ["--train.precision", "fp16", "--ddp.hook", "bf16"], "accumulate": ["--train.accumulate", 2],
                        "clip": ["--train.clip_norm", 0.1], "parts": ["--hybrid.part_bytes", "64KB"]}.items():
        plain = train(yoke, tmp_path / f"{name}-plain", "--steps", 2, *[w for w in words if name != "parts"]).json
        summed = hybrid(yoke, tmp_path / name, "--steps", 2, *words).json
        assert summed["parameter_hash"] == plain["parameter_hash"], name


def test_layouts_equal_one_device(yoke):
    layouts = "data=2,sync=hybrid,spares=1; data=2,sync=hybrid,spares=2,accumulate=2; data=4,sync=hybrid,spares=2"
    result = yoke("verify", LENET, "--data.name", "synthetic", "--data.batch_size", 8, "--layouts", layouts, "--steps", 3, "--json", "-q").json
    assert result["ok"] and len(result["layouts"]) == 3
    for row in result["layouts"]:
        assert max(row["max_diff"].values()) < 1e-10, row


def test_auto_keeps_to_the_workers_of_one_machine(yoke, tmp_path):
    plain = train(yoke, tmp_path / "plain", "--steps", 2).json
    run = yoke("train", LENET, "--nproc", 2, "--out.dir", tmp_path / "auto", *COMMON[:-1], "--parallel.sync", "auto", "--steps", 2)
    assert run.json["parameter_hash"] == plain["parameter_hash"]
    assert "all workers are on one machine" in run.err


@pytest.mark.parametrize("rank,role", [(2, "spare rank 0"), (1, "worker 1")])
def test_a_lost_rank_ends_the_job_and_is_named(yoke, tmp_path, rank, role):
    failed = hybrid(yoke, tmp_path / "run", "--steps", 500, code=137, timeout=60,
                    env={"YOKE_FAULT": f"rank={rank},hit=5,at=comm.collective.begin:kill"})
    assert f"rank {rank}" in failed.err and role in failed.err and "SIGKILL" in failed.err


@pytest.mark.parametrize("words,said", [
    (["--hybrid.servers", 3], "hybrid.servers = 3 with 2 workers"),
    (["--nproc", 1], "at least two workers"),
    (["--parallel.backend", "shm"], 'parallel.backend = "shm"'),
    (["--parallel.zero", 1], "parallel.zero"),
    (["--parallel.tensor", 2], "parallel.tensor"),
    (["--parallel.pipeline", 2], "parallel.pipeline"),
    (["--elastic"], "elastic.enabled"),
    (["--device", "cuda"], "host memory"),
    (["--hybrid.part_bytes", 0], "hybrid.part_bytes"),
])
def test_what_does_not_fit_is_refused_before_a_rank_starts(yoke, words, said):
    refused = yoke("train", LENET, *([] if "--nproc" in words else ["--nproc", 2]), "--parallel.sync", "hybrid", *words, code=2)
    assert said in refused.err


def test_keys_of_spare_ranks_need_them(yoke):
    assert "hybrid.servers" in yoke("train", LENET, "--nproc", 2, "--hybrid.servers", 2, code=2).err
    assert "more than one for each worker" in yoke("bench", "collectives", "--nproc", 2, "--backend", "tcp", "--spares", 3, code=2).err
    assert "--backend tcp" in yoke("bench", "collectives", "--nproc", 2, "--spares", 1, code=2).err


def test_every_rank_sends_what_the_formula_says(yoke):
    size = 1 << 20
    row = yoke("bench", "collectives", "--nproc", 4, "--spares", 2, "--backend", "tcp", "--bytes", size, "--iterations", 1, "--json",
               "-q").json["results"][0]
    assert row["algorithm"] == "summation" and row["correct"] and row["ranks"] == 6
    assert all(abs(sent - 1.2 * size) < 1000 for sent in row["bytes_sent"]), row
