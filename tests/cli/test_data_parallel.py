"""`yoke train --nproc`, `yoke verify` and `yoke bench scaling` as users type them."""
import json
import re

import pytest
from conftest import ROOT

MLP = ROOT / "configs/mlp_tiny.toml"


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_two_ranks_equal_one_with_the_whole_batch(yoke, tmp_path):
    common = [MLP, "--steps", 20, "--train.threads", 1, "--out.log_every", 1, "--json", "-q"]
    two = yoke("train", *common, "--nproc", 2, "--data.batch_size", 16, "--out.dir", tmp_path / "two").json
    one = yoke("train", *common, "--data.batch_size", 32, "--out.dir", tmp_path / "one").json
    assert two["world_size"] == 2 and len(two["peak_memory_bytes"]) == 2
    assert one["world_size"] == 1
    ours, expected = losses(tmp_path / "two"), losses(tmp_path / "one")
    assert len(ours) == 20
    assert max(abs(a - b) for a, b in zip(ours, expected)) < 1e-5
    assert two["accuracy"] == pytest.approx(one["accuracy"], abs=0.01)


@pytest.mark.parametrize("option", [["--ddp.delay_allreduce"], ["--ddp.bucket_bytes", "1KB", "--ddp.first_bucket_bytes", "1KB"],
                                    ["--ddp.find_unused"], ["--ddp.static_graph"], ["--ddp.broadcast_buffers"],
                                    ["--ddp.gradient_as_bucket_view", "false"], ["--parallel.backend", "tcp"]])
def test_every_way_of_reducing_gives_the_same_bits(yoke, tmp_path, option):
    common = [MLP, "--nproc", 2, "--steps", 10, "--train.threads", 1, "--json", "-q"]
    plain = yoke("train", *common, "--out.dir", tmp_path / "plain").json
    other = yoke("train", *common, *option, "--out.dir", tmp_path / "other").json
    assert other["parameter_hash"] == plain["parameter_hash"]


def test_a_run_goes_on_with_another_number_of_ranks(yoke, tmp_path):
    common = [MLP, "--train.threads", 1, "--out.dir", tmp_path / "run", "--json", "-q", "--checkpoint.every_steps", 5]
    yoke("train", *common, "--nproc", 2, "--steps", 10)
    more = yoke("train", *common, "--nproc", 3, "--steps", 15)
    assert more.json["resumed_from"] == 10 and more.json["world_size"] == 3
    alone = yoke("train", *common, "--steps", 20)
    assert alone.json["resumed_from"] == 15 and alone.json["world_size"] == 1


def test_the_number_of_replicas_must_be_the_number_of_ranks(yoke, tmp_path):
    failed = yoke("train", MLP, "--nproc", 2, "--parallel.data", 3, "--out.dir", tmp_path / "run", code=2)
    assert "parallel.data = 3: 2 ranks were started, but the mesh has 3" in failed.err and "--nproc 3" in failed.err


@pytest.mark.parametrize("hook", ["nonsense", "powersgd", "powersgd:0", "topk:2", "topk:"])
def test_an_unknown_hook_is_refused_before_anything_starts(yoke, tmp_path, hook):
    failed = yoke("train", MLP, "--nproc", 2, "--ddp.hook", hook, "--out.dir", tmp_path / "run", code=2)
    assert "powersgd:R" in failed.err
    assert not (tmp_path / "run").exists()


def test_verify_shows_layouts_beside_one_device(yoke):
    result = yoke("verify", MLP, "--layouts", "data=2; data=4,accumulate=2", "--steps", 3, "--json", "-q").json
    assert result["ok"] and len(result["reference"]["loss"]) == 3
    assert [row["layout"] for row in result["layouts"]] == ["data=2", "data=4,accumulate=2"]
    for row in result["layouts"]:
        assert row["ok"] and len(row["loss"]) == 3
        assert set(row["max_diff"]) == {"loss", "gradient", "parameter"}
        assert max(row["max_diff"].values()) < 1e-12


def test_shared_statistics_make_batchnorm_equal_to_one_device(yoke):
    words = ["verify", ROOT / "configs/resnet50_synthetic.toml", "--steps", 1, "--json", "-q",
             "--data.batch_size", 4, "--data.samples", 8, "--model.image_size", 32, "--model.classes", 10]
    layouts = ["data=2", "data=2,zero=2", "data=2,zero=3", "pipeline=2,data=2,microbatches=1", "pipeline=2,data=2,microbatches=1,zero=1",
               "pipeline=2,data=2,microbatches=1,zero=3"]
    for result in yoke(*words, "--layouts", ";".join(layouts), code=6).json["layouts"]:
        assert not result["ok"], result  # each replica has its own statistics
    assert yoke(*words, "--layouts", ";".join(layouts), "--train.sync_batchnorm").json["ok"]


def test_verify_beyond_tolerance_exits_with_6(yoke):
    result = yoke("verify", MLP, "--layouts", "data=2", "--steps", 2, "--dtype", "fp32", "--tolerance", "1e-30",
                  "--json", "-q", code=6).json
    assert not result["ok"] and not result["layouts"][0]["ok"]


def test_verify_never_calls_numbers_equal_that_are_not_finite(yoke):
    result = yoke("verify", MLP, "--layouts", "data=2", "--steps", 4, "--dtype", "fp32", "--train.lr", 1e30, "--json", "-q", code=6).json
    assert not result["ok"] and result["layouts"][0]["loss"][-1] is None
    assert max(result["layouts"][0]["max_diff"].values()) == 1e308


def test_verify_covers_every_way_to_be_data_parallel(yoke):
    layouts = "data=2,zero=1; data=4,zero=2; data=2,zero=2,accumulate=2; data=2,split=3:1; data=2,sync=threads"
    result = yoke("verify", MLP, "--layouts", layouts, "--steps", 3, "--json", "-q").json
    for row in result["layouts"]:
        assert row["ok"] and max(row["max_diff"].values()) < 1e-12, row


@pytest.mark.parametrize("option", [["--parallel.zero", 1], ["--parallel.zero", 2], ["--parallel.split", "3:1"],
                                    ["--parallel.sync", "threads"]])
def test_every_way_to_be_data_parallel_learns_the_same(yoke, tmp_path, option):
    common = [MLP, "--nproc", 2, "--steps", 20, "--train.threads", 1, "--out.log_every", 1, "--json", "-q"]
    yoke("train", *common, "--out.dir", tmp_path / "plain")
    other = yoke("train", *common, *option, "--out.dir", tmp_path / "other").json
    assert other["world_size"] == 2
    assert max(abs(a - b) for a, b in zip(losses(tmp_path / "plain"), losses(tmp_path / "other"))) < 1e-5


def test_a_slow_rank_gets_the_smaller_part(yoke, tmp_path):
    words = ["train", ROOT / "configs/lenet_fashion.toml", "--nproc", 2, "--train.threads", 1, "--train.evaluate", "false", "--steps", 24,
             "--parallel.split", "speed", "--slowdown.law", "const:4x", "--slowdown.workers", 1, "--out.dir", tmp_path / "run"]
    said = re.findall(r"the batch is split ([0-9.]+) %, ([0-9.]+) %", yoke(*words).err)
    assert said and 65 < float(said[0][0]) < 95, said  # 80 and 20 where nothing else runs


def test_spread_state_goes_on_bit_for_bit_and_with_any_number_of_ranks(yoke, tmp_path):
    common = ["train", MLP, "--train.threads", 1, "--train.optimizer", "adamw", "--json", "-q", "--checkpoint.every_steps", 5]
    whole = yoke(*common, "--nproc", 2, "--parallel.zero", 2, "--steps", 20, "--out.dir", tmp_path / "whole").json
    cut = [*common, "--out.dir", tmp_path / "cut"]
    yoke(*cut, "--nproc", 2, "--parallel.zero", 2, "--steps", 10)
    again = yoke(*cut, "--nproc", 2, "--parallel.zero", 2, "--steps", 20).json
    assert again["resumed_from"] == 10 and again["parameter_hash"] == whole["parameter_hash"]
    for steps, words in [(25, ["--nproc", 3, "--parallel.zero", 1]), (30, ["--nproc", 2]), (35, []),
                         (40, ["--nproc", 2, "--parallel.zero", 1])]:
        more = yoke(*cut, *words, "--steps", steps).json
        assert more["resumed_from"] == steps - 5 or more["resumed_from"] == 20, more


@pytest.mark.parametrize("hook", ["fp16", "bf16"])
@pytest.mark.parametrize("layout, zeros", [([], (0, 1, 2, 3)), (["--nproc", 4, "--parallel.pipeline", 2, "--pipeline.microbatches", 1], (0, 1, 2, 3))], ids=["whole", "stages"])
def test_narrow_gradients_train_the_same_sharded(yoke, tmp_path, hook, layout, zeros):
    """Two replicas: a sum of two has one order, so that nothing but the hook's rounding is left. One micro-batch: ZeRO 3 rounds
    the gradients of each."""
    def losses(name, *words):
        yoke("train", MLP, *(layout or ["--nproc", 2]), "--train.optimizer", "adamw", "--train.lr", 0.001, "--train.threads", 1, "--steps", 20, "--out.log_every", 1,
             "-q", "--out.dir", tmp_path / name, *words)
        return [json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]

    runs = [losses(f"zero {zero}", "--ddp.hook", hook, "--parallel.zero", zero) for zero in zeros]
    for run in runs:
        assert run == pytest.approx(runs[0], rel=1e-6)
    plain = losses("plain")
    assert plain != pytest.approx(runs[0], rel=1e-6) and plain == pytest.approx(runs[0], rel=0.05)


@pytest.mark.parametrize("hook", ["sign", "int8", "topk:0.3", "powersgd:2"])
@pytest.mark.parametrize("layout", [["--nproc", 2], ["--nproc", 4, "--parallel.pipeline", 2]], ids=["whole", "stages"])
def test_compressed_gradients_train_with_a_sharded_optimizer(yoke, tmp_path, hook, layout):
    whole, sharded = (yoke("train", MLP, *layout, "--ddp.hook", hook, "--parallel.zero", zero, "--train.threads", 1, "--steps", 100, "--json", "-q",
                           "--out.dir", tmp_path / str(zero)).json for zero in (0, 1))
    assert sharded["final_loss"] == pytest.approx(whole["final_loss"], rel=0.25)


@pytest.mark.parametrize("words, says", [
    (["--parallel.zero", 4], "parallel.zero"),
    (["--parallel.zero", 1, "--train.optimizer", "lbfgs"], 'train.optimizer = "lbfgs" cannot be combined with parallel.zero'),
    (["--parallel.zero", 2, "--ddp.hook", "powersgd:1"], 'ddp.hook = "powersgd:1" cannot be combined with parallel.zero = 2'),
    (["--parallel.zero", 3, "--ddp.hook", "sign"], "Use fp16 or bf16, or parallel.zero = 1"),
    (["--parallel.split", "8:4:2"], "3 shares for 2 replicas"),
    (["--parallel.split", "fast"], "equal, speed, or a share"),
    (["--slowdown.law", "gauss:1"], "'gauss:1' is unknown"),
    (["--slowdown.law", "exp:1ms", "--slowdown.workers", "2"], "slowdown.workers"),
    (["--slowdown.law", "exp:1ms", "--parallel.sync", "threads"], "cannot be combined with parallel.sync"),
    (["--slowdown.law", "exp:1ms", "--parallel.pipeline", 2], "cannot be combined with a pipeline"),
    (["--parallel.sync", "telepathy"], "threads")])
def test_what_does_not_go_together_is_explained(yoke, tmp_path, words, says):
    assert says in yoke("train", MLP, "--nproc", 2, "--out.dir", tmp_path / "run", *words, code=2).err


@pytest.mark.parametrize("layouts, says", [("dta=2", "'dta=2' is invalid"), ("data=0", "invalid"),
                                           ("", "no layout"), ("zero=4", "invalid"), ("data=2,split=1", "1 shares for 2"),
                                           ("data=2,sync=threads,zero=1", "cannot be combined with parallel.zero"),
                                           ("data=3", "into 3 equal parts"), ("zero=2", "parallel.zero = 2"),
                                           ("pipeline=2,data=2,zero=2,sync=ps,servers=2", "cannot be combined with parallel.sync")])
def test_bad_layouts_are_explained(yoke, layouts, says):
    assert says in yoke("verify", MLP, "--layouts", layouts, "-q", code=2).err


def test_bench_scaling_gives_every_figure(yoke):
    rows = yoke("bench", "scaling", "--model", "mlp", "--nproc", "1,2", "--batch", 8, "--steps", 10, "--json", "-q").json["results"]
    assert [row["nproc"] for row in rows] == [1, 2]
    for row in rows:
        assert row["step_seconds"]["median"] > 0 and row["step_seconds"]["p95"] > 0
        assert row["samples_per_s"] > 0 and row["peak_memory_bytes"] > 0
        assert row["exposed_comm_seconds"] >= 0 and row["in_step_seconds"] > 0
    assert rows[0]["scaling_efficiency"] == 1 and rows[0]["bytes_sent"] == 0
    staged = yoke("bench", "scaling", "--model", "mlp", "--nproc", "2", "--batch", 8, "--steps", 10, "--parallel.pipeline", 2, "--json", "-q")
    staged = staged.json["results"][-1]
    assert "alone_step_seconds" not in staged and "communication_efficiency" not in staged, "parts cannot train alone"
    assert 0 < staged["compute_seconds"] < staged["step_seconds"]["median"]
    # Two ranks send half of the gradients each, twice, and a loss.
    parameters = yoke("model", "info", "mlp", "--json").json["parameters"]
    assert rows[1]["bytes_sent"] == pytest.approx(4 * parameters, rel=0.02)
    # With spread state half of the gradients, and half of the parameters on their way back, unless these are in common.
    for how, times in [((), 2), (("--no-ddp.share_parameters",), 4), (("--backend", "tcp"), 4)]:
        spread = yoke("bench", "scaling", "--model", "mlp", "--nproc", 2, "--batch", 8, "--steps", 10, "--parallel.zero", 1, *how, "--json", "-q")
        assert spread.json["results"][-1]["bytes_sent"] == pytest.approx(times * parameters, rel=0.02), how
