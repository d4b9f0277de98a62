"""`yoke train --parallel.sync ps`, `yoke verify` and `yoke lab` with parameter servers, as users type them."""
import json
import math

import pytest
from conftest import ROOT

MLP = ROOT / "configs/mlp_tiny.toml"
RULES = ["sync", "k_sync", "k_batch_sync", "async", "k_async", "k_batch_async", "bounded_delay", "ssp"]


def served(*words, workers=2, servers=1):
    return ["train", MLP, "--nproc", workers, "--parallel.sync", "ps", "--ps.servers", servers, "--train.threads", 1, "--json", "-q", *words]


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_trains(yoke, tmp_path, rule):
    run = yoke(*served("--ps.policy", rule, "--ps.k", 2, "--ps.max_delay", 1, "--steps", 60, "--out.dir", tmp_path, workers=3, servers=2))
    summary = run.json
    assert "is lost" not in run.err, "servers end with the job"
    assert summary["steps"] == 60 and summary["world_size"] == 3
    counts = json.loads((tmp_path / "ps.json").read_text())
    assert counts["version"] == 60 and counts["policy"] == rule and len(counts["workers"]) == 3
    # Of the servers' parameters: the last record may be of few updates.
    assert summary["eval_loss"] < 0.1  # 2.3 before the first update
    assert "Parameter servers" in (tmp_path / "report.html").read_text()


def test_servers_say_what_they_spent_their_time_on(yoke, tmp_path):
    yoke(*served("--steps", 30, "--out.dir", tmp_path, workers=2, servers=2))
    servers = json.loads((tmp_path / "ps.json").read_text())["server_times"]
    assert [one["server"] for one in servers] == [0, 1]
    for one in servers:
        assert one["apply_seconds"] > 0 and one["wait_seconds"] > 0 and one["receive_seconds"] >= 0
    # 32 x 64 + 64 + 64 x 10 + 10 parameters in fp32, from two workers in each of 30 updates
    assert sum(one["pushed_bytes"] for one in servers) == 2 * 30 * 4 * 2762
    assert sum(one["pulled_bytes"] for one in servers) >= 30 * 4 * 2762
    page = (tmp_path / "report.html").read_text()
    assert "Time of each worker" in page and "Time of each server" in page and "Time and bytes per server" in page


def test_a_slow_link_holds_gradients_up_and_changes_no_result(yoke, tmp_path):
    runs = {}
    for name, words in {"fast": [], "slow": ["--slowdown.link", "shifted_exp:5ms,1ms", "--slowdown.workers", 1]}.items():
        summary = yoke(*served("--steps", 20, "--out.dir", tmp_path / name, *words)).json
        workers = json.loads((tmp_path / name / "ps.json").read_text())["workers"]
        runs[name] = summary["final_loss"], workers
    assert runs["fast"][0] == runs["slow"][0]
    assert runs["slow"][1][0]["idle_seconds"] > 20 * 0.005, "the first worker waits for the other one's gradients"


def test_sync_and_bounded_delay_of_zero_equal_one_device(yoke):
    result = yoke("verify", MLP, "--layouts", "data=2,sync=ps; data=4,sync=ps,servers=2,accumulate=2; data=2,sync=ps,policy=bounded_delay; "
                  "data=2,sync=ps,policy=k_sync,k=2; data=1,sync=ps,policy=async", "--steps", 5, "--json", "-q").json
    assert result["ok"]
    for row in result["layouts"]:
        assert row["max_diff"]["parameter"] < 1e-10 and row["max_diff"]["loss"] < 1e-10


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("rule", ["policy=sync", "policy=k_sync,k=2", "policy=bounded_delay"])
def test_gradients_are_clipped_as_on_one_device(yoke, rule, servers):
    result = yoke("verify", MLP, "--layouts", f"data=2,sync=ps,{rule},servers={servers}", "--steps", 5, "--train.clip_norm", 0.5, "--train.lr", 0.2,
                  "--json", "-q").json
    assert result["ok"] and result["layouts"][0]["max_diff"]["parameter"] < 1e-10


def records_of(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("clip_norm", [0, 0.5])
def test_records_of_a_synchronous_run_are_those_of_data_parallel_training(yoke, tmp_path, clip_norm):
    words = ["--steps", 20, "--out.log_every", 5, "--train.clip_norm", clip_norm]
    yoke(*served(*words, "--out.dir", tmp_path / "ps", servers=2))
    yoke("train", MLP, "--nproc", 2, "--train.threads", 1, "-q", *words, "--out.dir", tmp_path / "ddp")
    ours, theirs = (records_of(tmp_path / name) for name in ("ps", "ddp"))
    assert [record["step"] for record in ours] == [record["step"] for record in theirs]
    assert {5, 10, 15, 20} <= {record["step"] for record in ours if "grad_norm" in record}
    for one, other in zip(ours, theirs):
        assert one.get("grad_norm", 0) == pytest.approx(other.get("grad_norm", 0), rel=1e-3)
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
        assert one["comm_seconds"] > 0
        assert all(seconds >= 0 for seconds in one["split"].values())
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("ps", "ddp")]
    assert summaries[0]["final_loss"] == pytest.approx(summaries[1]["final_loss"], rel=1e-3)


def test_the_losses_are_those_of_all_workers_when_the_first_is_slow(yoke, tmp_path):
    summary = yoke(*served("--ps.policy", "async", "--slowdown.law", "const:50x", "--slowdown.workers", 0, "--steps", 300, "--out.dir", tmp_path,
                           "--ps.log_updates", workers=3)).json
    updates = [json.loads(line) for line in (tmp_path / "updates.jsonl").read_text().splitlines()]
    counts = json.loads((tmp_path / "ps.json").read_text())
    curve = counts["loss_curve"]
    assert curve["version"] == list(range(1, 301)) and curve["gradients"] == [1] * 300
    assert curve["loss"] == pytest.approx([update["loss"] for update in updates])
    assert curve["seconds"] == sorted(curve["seconds"])
    # The last record's loss is the mean over everybody's updates since the record before.
    records = records_of(tmp_path)
    assert len(records) < 300
    since = sum(1 for update in updates if update["version"] > records[-2]["step"]) if len(records) > 1 else 300
    last = [update["loss"] for update in updates[-since:]]
    assert summary["final_loss"] == records[-1]["loss"]
    assert min(last) - 1e-6 <= summary["final_loss"] <= max(last) + 1e-6
    page = (tmp_path / "report.html").read_text()
    assert "Loss over time" in page and "Loss over updates" in page


@pytest.mark.parametrize("rule", ["k_sync", "k_batch_sync"])
def test_rules_that_cancel_lose_no_worker(yoke, tmp_path, rule):
    yoke(*served("--ps.policy", rule, "--ps.k", 1, "--model.sizes", "784,512,512,512,10", "--steps", 200, "--no-train.evaluate", "--out.dir", tmp_path,
                 workers=3))
    counts = json.loads((tmp_path / "ps.json").read_text())
    assert counts["cancelled"] > 70  # autograd used to break at about 60 in a process
    assert not any(worker["lost"] for worker in counts["workers"])


@pytest.mark.parametrize("rule", ["sync", "bounded_delay"])
def test_equal_synchronous_runs_have_equal_bits(yoke, tmp_path, rule):
    runs = [yoke(*served("--ps.policy", rule, "--steps", 60, "--slowdown.law", "exp:1ms", "--slowdown.seed", seed, "--out.dir", tmp_path / str(seed),
                         workers=3, servers=2)).json for seed in (1, 2)]
    assert runs[0]["parameter_hash"] == runs[1]["parameter_hash"]


OVERLAPPED = {"plain": [], "clipped": ["--train.clip_norm", 0.5], "accumulated": ["--train.accumulate", 3], "recomputed": ["--train.recompute", "blocks"],
              "copied": ["--ps.replicas", 1], "logged": ["--out.log_every", 1], "adamw": ["--train.optimizer", "adamw", "--train.lr", 0.001]}


@pytest.mark.parametrize("words", OVERLAPPED.values(), ids=OVERLAPPED.keys())
def test_overlap_changes_no_bit(yoke, tmp_path, words):
    both = [yoke(*served("--steps", 24, "--out.dir", tmp_path / overlap, overlap, "--ps.range_bytes", "1KB", *words, workers=3, servers=2)).json
            for overlap in ("--ps.overlap", "--no-ps.overlap")]
    assert both[0]["parameter_hash"] == both[1]["parameter_hash"]
    assert both[0]["final_loss"] == both[1]["final_loss"]
    records = [[(r["step"], r["loss"], r.get("grad_norm")) for r in records_of(tmp_path / overlap)] for overlap in ("--ps.overlap", "--no-ps.overlap")]
    assert records[0] == records[1]


def test_a_worker_killed_while_its_gradient_leaves_is_written_off(yoke, tmp_path):
    result = yoke(*served("--steps", 40, "--out.dir", tmp_path, workers=3, servers=2), env={"YOKE_FAULT": "rank=2,step=9,at=ps.push:kill"})
    counts = json.loads((tmp_path / "ps.json").read_text())
    assert result.json["steps"] == 40 and [worker["lost"] for worker in counts["workers"]] == [False, False, True]


def test_records_are_of_all_workers(yoke, tmp_path):
    # The last batch of the epoch is a small one: 1,024 samples are 15 times 33 and 17 for each worker.
    words = served("--train.epochs", 1, "--data.batch_size", 33, "--no-data.drop_last", "--trace", "--out.dir", tmp_path)
    summary = yoke(*words).json
    assert records_of(tmp_path)[-1]["samples"] == 1024
    assert len(summary["peak_memory_bytes"]) == summary["world_size"] == 2 and min(summary["peak_memory_bytes"]) > 10e6
    assert summary["command"] == "yoke " + " ".join(map(str, words))
    assert {file.name for file in (tmp_path / "trace").iterdir()} == {"rank-0.json", "rank-1.json", "all.json"}
    names = {event.get("name") for event in json.loads((tmp_path / "trace/rank-1.json").read_text())["traceEvents"]}
    assert {"forward", "backward", "wait for gradients"} <= names


@pytest.mark.parametrize("words,said", [
    (["--train.sync_batchnorm"], "ps.on_worker_loss"), (["--train.sync_batchnorm", "--ps.policy", "async"], "ps.policy"),
    (["--ddp.hook", "powersgd:2"], "powersgd:2"), (["--ddp.hook", "int8", "--train.optimizer", "lbfgs"], "ddp.hook"),
])
def test_what_needs_all_workers_at_once_is_refused(yoke, tmp_path, words, said):
    failed = yoke(*served(*words, "--steps", 2, "--out.dir", tmp_path), code=2)
    assert said in failed.err and words[0][2:] in failed.err


def test_fp16_with_compressed_gradients_equals_data_parallel_training(yoke, tmp_path):
    words = ["--steps", 8, "--train.precision", "fp16", "--out.log_every", 1, "--train.schedule", "constant"]
    plain = yoke("train", MLP, "--nproc", 2, "--json", "-q", *words, "--out.dir", tmp_path / "plain").json
    summary = yoke(*served(*words, "--trace", "--ddp.hook", "fp16", "--ps.servers", 2, "--ps.replicas", 1, "--out.dir", tmp_path / "ps")).json
    scales = [[record["loss_scale"] for record in records_of(tmp_path / name)] for name in ("plain", "ps")]
    assert scales[0] == scales[1] and len(scales[0]) == 8
    assert summary["final_loss"] == pytest.approx(plain["final_loss"], rel=1e-2)
    assert json.loads((tmp_path / "ps/ps.json").read_text())["skipped"] == 0


def test_a_gradient_that_is_not_finite_ends_the_run_or_is_skipped(yoke, tmp_path):
    failed = yoke(*served("--train.lr", 1e30, "--steps", 20, "--out.dir", tmp_path / "ends"), code=2)
    assert "not finite" in failed.err and "train.lr" in failed.err and "layers." in failed.err
    # Nothing that is finite ever comes again: skipping has an end, too.
    words = ["--train.lr", 1e30, "--train.non_finite", "skip", "--steps", 20, "--out.dir", tmp_path / "skips"]
    failed = yoke(*served(*words), code=2)
    assert "skipped" in failed.err and "in a row" in failed.err


@pytest.mark.parametrize("optimizer", [["--train.momentum", 0], ["--train.momentum", 0.9], ["--train.optimizer", "adagrad"],
                                       ["--train.optimizer", "adamw", "--train.lr", 0.001], ["--train.optimizer", "ftrl", "--train.l1", 0.001],
                                       ["--train.optimizer", "proximal", "--train.l1", 0.001, "--train.l2", 0.01]])
def test_every_optimizer_of_a_server_equals_that_of_one_device(yoke, optimizer):
    assert yoke("verify", MLP, "--layouts", "data=2,sync=ps,servers=2", "--steps", 5, *optimizer, "--json", "-q").json["ok"]


def test_one_asynchronous_worker_is_plain_sgd_bit_for_bit(yoke, tmp_path):
    words = ["--train.momentum", 0, "--steps", 30, "--train.threads", 1]
    ours = yoke(*served("--ps.policy", "async", *words, "--out.dir", tmp_path / "ps", workers=1)).json
    alone = yoke("train", MLP, *words, "--json", "-q", "--out.dir", tmp_path / "one").json
    assert ours["parameter_hash"] == alone["parameter_hash"]


@pytest.mark.parametrize("clip_norm", [0, 0.5])
def test_a_run_goes_on_from_its_checkpoint(yoke, tmp_path, clip_norm):
    words = ["--checkpoint.every_steps", 10, "--train.clip_norm", clip_norm]
    whole = yoke(*served(*words, "--steps", 40, "--out.dir", tmp_path / "whole")).json
    yoke(*served(*words, "--steps", 20, "--out.dir", tmp_path / "parts"))
    more = yoke(*served(*words, "--steps", 40, "--out.dir", tmp_path / "parts")).json
    assert more["resumed_from"] == 20
    assert more["final_loss"] == pytest.approx(whole["final_loss"], rel=1e-5)
    # And a run without servers goes on from one of theirs.
    alone = yoke("train", MLP, "--nproc", 2, *words, "--steps", 45, "--json", "-q", "--out.dir", tmp_path / "parts").json
    assert alone["resumed_from"] == 40


def test_an_asynchronous_run_saves_one_version(yoke, tmp_path):
    yoke(*served("--ps.policy", "async", "--checkpoint.every_steps", 20, "--steps", 50, "--out.dir", tmp_path))
    assert yoke("ckpt", "verify", tmp_path, "--json").json
    more = yoke(*served("--ps.policy", "async", "--steps", 60, "--out.dir", tmp_path)).json
    assert more["resumed_from"] == 50 and more["steps"] == 60


@pytest.mark.parametrize("words", [[], ["--no-ps.overlap"], ["--ps.n_fetch", 2], ["--ps.n_push", 1]], ids=["overlap", "in turn", "same pace", "fetch less"])
def test_downpour(yoke, tmp_path, words):
    summary = yoke(*served("--ps.policy", "async", "--ps.n_push", 2, "--ps.n_fetch", 4, "--ps.warm_start", 5, "--train.optimizer", "adagrad",
                           "--train.lr", 0.01, "--steps", 40, "--ps.log_updates", "--out.dir", tmp_path, *words)).json
    assert summary["steps"] == 40 and summary["eval_loss"] < 1  # 2.3 before the first update
    lines = [json.loads(line) for line in (tmp_path / "updates.jsonl").read_text().splitlines()]
    assert [line["version"] for line in lines] == list(range(1, 41))


def test_downpour_with_one_worker_that_fetches_and_pushes_every_step_is_sgd(yoke, tmp_path):
    words = ["--steps", 40, "--train.momentum", 0, "--out.log_every", 1]
    yoke(*served("--ps.policy", "async", "--ps.n_push", 1, "--ps.n_fetch", 1, *words, "--out.dir", tmp_path / "served", workers=1))
    yoke("train", MLP, "--train.threads", 1, "--json", "-q", *words, "--out.dir", tmp_path / "alone")
    served_losses, losses = ([json.loads(line)["loss"] for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()] for name in ("served", "alone"))
    assert len(losses) == 40 and served_losses == pytest.approx(losses, rel=1e-5)


def test_many_workers_and_servers_train_on_one_machine(yoke, tmp_path):
    summary = yoke(*served("--data.batch_size", 4, "--steps", 5, "--no-train.evaluate", "--out.dir", tmp_path, workers=64, servers=16)).json
    assert summary["steps"] == 5 and summary["world_size"] == 64
    assert len(json.loads((tmp_path / "ps.json").read_text())["workers"]) == 64


def test_the_delay_changes_while_it_trains(yoke, tmp_path):
    summary = yoke(*served("--ps.policy", "bounded_delay", "--ps.max_delay", "0, 20:2, 40:inf", "--steps", 60, "--ps.log_updates", "--out.dir", tmp_path,
                           workers=3, servers=2)).json
    assert summary["steps"] == 60
    lines = [json.loads(line) for line in (tmp_path / "updates.jsonl").read_text().splitlines()]
    assert [line["max_delay"] for line in lines] == [0] * 20 + [2] * 20 + ["inf"] * 20


@pytest.mark.parametrize("backend", ["shm", "tcp"])
def test_servers_inside_the_workers_give_the_same_bits(yoke, tmp_path, backend):
    def hash_of(*words):
        return yoke(*served("--steps", 30, "--train.clip_norm", 0.5, "--parallel.backend", backend, "--out.dir", tmp_path / words[-1], *words, servers=2)).json["parameter_hash"]

    assert hash_of("--ps.place", "dedicated") == hash_of("--ps.place", "colocated")
    assert json.loads((tmp_path / "colocated/ps.json").read_text())["place"] == "colocated"


def test_servers_inside_some_of_the_workers(yoke, tmp_path):
    words = ["--ps.place", "colocated", "--ps.policy", "k_async", "--ps.k", 2, "--steps", 60, "--checkpoint.every_steps", 30]
    assert yoke(*served(*words, "--out.dir", tmp_path, workers=3, servers=2)).json["steps"] == 60
    assert len(json.loads((tmp_path / "ps.json").read_text())["workers"]) == 3
    alone = yoke(*served("--ps.place", "colocated", "--steps", 10, "--out.dir", tmp_path / "alone", workers=1)).json
    assert alone["steps"] == 10


MISTAKES = [
    (["--ps.policy", "k_async"], "needs ps.k"),
    (["--ps.policy", "k_async", "--ps.k", 9], "k = 9 with 2 workers"),
    (["--ps.policy", "asink"], "ps.policy"),
    (["--ps.policy", "ssp", "--ps.max_delay", "0, 9:1, 4:2"], "'4:2'"),
    (["--ps.n_push", 2], "asynchronous rule"),
    (["--slowdown.law", "gauss:1"], "'gauss:1' is unknown"),
    (["--slowdown.link", "const:2x"], "the delay of a link is a time"),
    (["--ps.servers", 0], "ps.servers"),
    (["--ps.place", "colocated", "--ps.servers", 3], "each worker hosts at most one server"),
]


@pytest.mark.parametrize("words,says", MISTAKES, ids=[" ".join(map(str, words)) for words, _ in MISTAKES])
def test_mistakes(yoke, tmp_path, words, says):
    failed = yoke(*served(*words, "--out.dir", tmp_path / "run"), code=2)
    assert says in failed.err
    assert not (tmp_path / "run").exists()


def test_a_quiet_lab_prints_its_table_alone(yoke, tmp_path):
    result = yoke("lab", "stragglers", MLP, "--policies", "sync", "--workers", 1, "--delay", "none", "--train.steps", 2,
                  "--train.threads", 1, "-o", tmp_path, "-q")
    assert result.err == ""
    lines = result.out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["rule", "----", "sync", "target:"]
    assert lines[-1].startswith("report: ")


def test_the_lab_compares_rules(yoke, tmp_path):
    result = yoke("lab", "stragglers", MLP, "--policies", "sync,k_batch_async", "--workers", 2, "--delay", "const:2x", "--delay-workers", 1,
                  "--fault-free", "--train.steps", 40, "--train.threads", 1, "-o", tmp_path, "--json", "-q").json
    assert [row["policy"] for row in result["results"]] == ["sync", "k_batch_async"]
    for row in result["results"]:
        assert {"k", "final_loss", "staleness_mean", "seconds_to_target", "rate_kept"} <= row.keys()
    page = (tmp_path / "report.html").read_text()
    assert "Loss over time" in page and "Loss over updates" in page and "reached a loss" in page


def test_the_lab_trains_its_own_recipe_on_noisy_labels(yoke, tmp_path):
    result = yoke("lab", "stragglers", "--trained", "--quick", "--policies", "sync,async", "-o", tmp_path, "--json", "-q").json
    assert [row["policy"] for row in result["results"]] == ["sync", "async"]
    # 0.3 of the labels are drawn from 100 classes: 0.703 are right, 0.003 are each of the others.
    assert result["label_entropy"] == pytest.approx(-0.703 * math.log(0.703) - 0.297 * math.log(0.003))
    for row in result["results"]:  # so few steps hardly learn, and no model predicts noise
        assert row["loss_floor"] > result["label_entropy"] and row["k"] in (1, 2)
    # The same number of minibatches: as many updates of two gradients as sync takes, twice as many of one.
    updates = {name: json.loads((tmp_path / name / "ps.json").read_text())["gradients"] for name in ("sync", "async")}
    assert updates["sync"] == updates["async"] == 40
    assert "entropy of the labels" in (tmp_path / "loss_time.svg").read_text()
