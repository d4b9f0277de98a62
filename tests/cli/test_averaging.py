"""`parallel.sync = "average"` and `yoke lab averaging` as users type them."""
import json

import pytest
from conftest import ROOT

MLP = ROOT / "configs/mlp_tiny.toml"
METHODS = {
    "local": ["--average.every", 4],
    "end": ["--average.method", "end"],
    "post_local": ["--average.method", "post_local", "--average.start", 6, "--average.every", 4],
    "diloco": ["--average.method", "diloco", "--average.every", 4],
    "streaming": ["--average.method", "diloco", "--average.every", 4, "--average.fragments", 2, "--average.overlap", 2],
    "gossip": ["--average.method", "gossip", "--average.graph", "exponential", "--average.overlap", 1],
}


def train(yoke, folder, *words, ranks=3, code=0, **more):
    return yoke("train", MLP, "--nproc", ranks, "--train.threads", 1, "--out.dir", folder, "--json", "-q", "--parallel.sync", "average",
                *words, code=code, **more)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_and_resumes_to_the_bit(yoke, tmp_path, method):
    words = [*METHODS[method], "--checkpoint.every_steps", 5]
    whole = train(yoke, tmp_path / "whole", *words, "--steps", 20).json
    assert whole["world_size"] == 3 and whole["accuracy"] > 0.5
    train(yoke, tmp_path / "run", *words, "--steps", 10)
    resumed = train(yoke, tmp_path / "run", *words, "--steps", 20)
    assert resumed.json["resumed_from"] == 10
    assert resumed.json["parameter_hash"] == whole["parameter_hash"]


def test_pairs_average_without_waiting_and_resume(yoke, tmp_path):
    words = ["--average.method", "async_gossip", "--average.graph", "full", "--checkpoint.every_steps", 10]
    train(yoke, tmp_path / "run", *words, "--steps", 10)
    resumed = train(yoke, tmp_path / "run", *words, "--steps", 20).json
    assert resumed["resumed_from"] == 10 and resumed["accuracy"] > 0.5 and resumed["communication"]["data"][0] > 0


def test_verify_compares_what_is_one_device(yoke):
    layouts = ("data=2,sync=average; data=4,sync=average; data=2,sync=average,method=post_local; data=2,sync=average,method=gossip; "
               "data=2,sync=average,method=diloco,outer_lr=1,outer_momentum=0; data=2,tensor=2,sync=average")
    result = yoke("verify", MLP, "--layouts", layouts, "--steps", 3, "--json", "-q").json
    assert result["ok"] and len(result["layouts"]) == 6
    for row in result["layouts"]:
        assert max(row["max_diff"].values()) < 1e-10, row


@pytest.mark.parametrize("layout,said", [("data=2,sync=average,every=2", "average.every = 2"), ("data=4,sync=average,method=gossip", "gossip"),
                                         ("data=2,sync=average,method=diloco", "average.outer_lr = 1")])
def test_verify_refuses_what_is_not(yoke, layout, said):
    assert said in yoke("verify", MLP, "--layouts", layout, code=2).err


@pytest.mark.parametrize("ranks,words,said", [
    (2, ["--average.every", 0], "average.every"),
    (2, ["--average.method", "lokal"], "post_local"),
    (6, ["--average.method", "gossip", "--average.graph", "hypercube"], "Nearest: 4 or 8"),
    (7, ["--average.method", "gossip", "--average.graph", "torus"], "Nearest: 6 or 8"),
    (2, ["--average.fragments", 2], "average.fragments = 2"),
    (2, ["--average.overlap", 2], "average.overlap = 2"),
    (2, ["--average.method", "diloco", "--average.outer_lr", 0], "average.outer_lr = 0"),
    (2, ["--average.method", "diloco", "--average.outer_momentum", 1], "average.outer_momentum = 1"),
    (2, ["--average.method", "gossip", "--ddp.hook", "fp16"], 'ddp.hook = "fp16"'),
    (2, ["--average.method", "async_gossip", "--average.overlap", 1], "average.overlap = 1"),
    (2, ["--train.optimizer", "lbfgs"], "lbfgs"),
    (2, ["--train.precision", "fp16"], "fp16"),
    (2, ["--parallel.zero", 1], "parallel.zero"),
    (2, ["--parallel.pipeline", 2], "parallel.pipeline"),
    (2, ["--train.sync_batchnorm"], "train.sync_batchnorm"),
])
def test_what_cannot_be_is_refused_before_anything_starts(yoke, tmp_path, ranks, words, said):
    failed = train(yoke, tmp_path / "run", *words, ranks=ranks, code=2)
    assert said in failed.err
    assert not (tmp_path / "run").exists()


def test_more_fragments_than_tensors_are_refused(yoke, tmp_path):
    failed = train(yoke, tmp_path / "run", "--average.every", 9, "--average.fragments", 9, code=2)
    assert "average.fragments = 9" in failed.err


def test_compression_reaches_the_same_loss(yoke, tmp_path):
    plain = train(yoke, tmp_path / "plain", "--average.every", 4, "--steps", 40).json
    small = train(yoke, tmp_path / "small", "--average.every", 4, "--steps", 40, "--ddp.hook", "bf16").json
    assert small["final_loss"] == pytest.approx(plain["final_loss"], rel=0.05)


def test_tensor_slices_average_on_their_data_axis(yoke, tmp_path):
    run = train(yoke, tmp_path / "run", "--parallel.tensor", 2, "--average.every", 4, "--steps", 12, ranks=4).json
    assert run["world_size"] == 4 and run["accuracy"] > 0.3


def test_a_killed_rank_is_named(yoke, tmp_path):
    failed = train(yoke, tmp_path / "run", "--average.every", 4, "--steps", 100000, code=137,
                   env={"YOKE_FAULT": "rank=1,step=8,at=comm.collective.begin:kill"})
    assert "rank 1" in failed.err and "SIGKILL" in failed.err


def test_the_lab_compares_all_ways(yoke, tmp_path):
    result = yoke("lab", "averaging", MLP, "--workers", 2, "--steps", 12, "--every", 4, "--compute", "2ms", "--train.threads", 1,
                  "-o", tmp_path / "lab", "--json", "-q").json
    rows = {row["method"]: row for row in result["results"]}
    assert set(rows) == {"ddp", "local", "end", "post_local", "diloco", "diloco_streaming", "gossip_ring", "gossip_hypercube", "gossip_exponential"}
    model = (32 * 64 + 64 + 64 * 10 + 10) * 4  # an all-reduce over two sends each byte once
    assert rows["ddp"]["bytes"] == pytest.approx(12 * model)
    assert rows["local"]["bytes"] == pytest.approx((3 + 1) * model)
    assert rows["end"]["bytes"] == pytest.approx(model)
    assert rows["local"]["seconds"] < rows["ddp"]["seconds"]
    page = (tmp_path / "lab/report.html").read_text()
    assert page.count("<svg") == 2 and "gossip_ring" in page
    assert json.loads((tmp_path / "lab/results.json").read_text())["target_loss"] == result["target_loss"]


def test_the_lab_charges_every_way_for_the_link(yoke, tmp_path):
    result = yoke("lab", "averaging", MLP, "--methods", "ddp,local,async_gossip", "--workers", 2, "--steps", 12, "--every", 4, "--compute", "3ms",
                  "--train.threads", 1, "-o", tmp_path / "lab", "--json", "-q").json
    rows = {row["method"]: row for row in result["results"]}
    model = (32 * 64 + 64 + 64 * 10 + 10) * 4
    once = model / 12.5e6  # seconds on 100 Mbit/s; each message takes 1 ms more
    all_reduce = 0.002 + once
    assert rows["ddp"]["seconds"] == pytest.approx(12 * (0.001 + all_reduce))  # hidden behind backward: two thirds of a step
    assert rows["local"]["seconds"] == pytest.approx(12 * 0.003 + 4 * all_reduce)
    assert rows["async_gossip"]["bytes"] == pytest.approx((3 * 2 + 1) * model)
    pairs = 2 * (0.003 + 2 * once)  # asked and asking; only the last are waited for
    assert rows["async_gossip"]["seconds"] == pytest.approx(12 * 0.003 + pairs + all_reduce)


def test_the_lab_leaves_out_pairs_that_the_link_cannot_carry(yoke, tmp_path):
    # Two pairs take 9.5 ms on the link, four steps 8 ms.
    result = yoke("lab", "averaging", MLP, "--methods", "local,async_gossip", "--workers", 2, "--steps", 12, "--every", 4, "--compute", "2ms",
                  "--train.threads", 1, "-o", tmp_path / "lab", "--json")
    assert [row["method"] for row in result.json["results"]] == ["local"]
    assert "without async_gossip" in result.err and "--every 5 lets it take part" in result.err
    assert not (tmp_path / "lab/async_gossip").exists(), "it need not train"
    alone = yoke("lab", "averaging", MLP, "--methods", "async_gossip", "--workers", 2, "--steps", 12, "--every", 4, "--compute", "2ms",
                 "-o", tmp_path / "none", code=2)
    assert "carries none of them" in alone.err


def test_the_lab_refuses_what_it_does_not_know(yoke, tmp_path):
    assert "there is no 'sgd'" in yoke("lab", "averaging", MLP, "--methods", "ddp,sgd", "--steps", 4, "-o", tmp_path, code=2).err
    assert "--bandwidth slow" in yoke("lab", "averaging", MLP, "--bandwidth", "slow", "--steps", 4, "-o", tmp_path, code=2).err
    assert "average.method" in yoke("lab", "averaging", MLP, "--average.method", "local", "--steps", 4, code=2).err
