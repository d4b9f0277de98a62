"""Elastic pipelines as users type them: a spare takes a lost stage's place, or fewer ranks take all stages."""
import os
import random
import re
import signal

import pytest
from test_elastic import ADAM, Job, elastic, records, summary_of

from conftest import ROOT

STEPS = 20
MODEL = ["--model.sizes", "[32, 48, 48, 48, 48, 10]"]


def layout(stages=3, schedule="1f1b", data=1):
    return [*MODEL, "--parallel.pipeline", stages, "--parallel.data", data, "--pipeline.schedule", schedule, "--train.deterministic"]


def kill(rank, step, at="pipeline.send", hit=1):
    return f"rank={rank},step={step},hit={hit},at={at}:kill"


def losses(folder):
    return [row["loss"] for row in records(folder)]


def expect_same(yoke, tmp_path, words, ranks, steps=STEPS):
    """The run equals one without faults, to the bit: stages cut differently compute the same micro-batches."""
    elastic(yoke, tmp_path / "plain", *words, "--steps", steps, ranks=ranks)
    assert [row["step"] for row in records(tmp_path / "run")] == list(range(1, steps + 1))
    assert losses(tmp_path / "run") == losses(tmp_path / "plain")
    assert summary_of(tmp_path / "run")["parameter_hash"] == summary_of(tmp_path / "plain")["parameter_hash"]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_spare_takes_the_place_of_a_lost_stage(yoke, tmp_path, schedule, victim):
    draw = random.Random(f"{schedule} {victim}")
    step = draw.randrange(2, STEPS)
    words = [*layout(schedule=schedule), *ADAM, "--checkpoint.every_steps", 0]
    run = elastic(yoke, tmp_path / "run", *words, "--steps", STEPS, ranks=4, faults=[kill(victim, step, hit=draw.randrange(1, 8))], quiet=False)
    summary = summary_of(tmp_path / "run")
    assert summary["mesh"] == {"pipeline": 3, "data": 1, "tensor": 1} and summary["world_size"] == 3
    assert summary["elastic"]["losses"] == 1 and summary["elastic"]["repeated"] <= 1
    assert f"stage {victim} of epoch 0 is rebuilt from the copy of a neighbour" in run.err
    assert "epoch 0: pipeline=3 on 4 ranks, 1 of them spare" in run.err and "epoch 1: pipeline=3 on 3 ranks" in run.err
    expect_same(yoke, tmp_path, words, ranks=4)


@pytest.mark.parametrize("at", ["comm.collective.begin", "elastic.copy"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_stage_may_be_lost_at_any_moment_of_a_step(yoke, tmp_path, at, victim):
    words = [*layout(), "--checkpoint.every_steps", 0]
    run = elastic(yoke, tmp_path / "run", *words, "--steps", STEPS, ranks=4, faults=[kill(victim, 7, at)], quiet=False)
    assert re.search(r"continue after step [67];", run.err)
    expect_same(yoke, tmp_path, words, ranks=4)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_without_a_spare_the_stages_are_cut_anew(yoke, tmp_path, schedule, victim):
    step = random.Random(f"{schedule} {victim} anew").randrange(2, STEPS)
    words = [*layout(schedule=schedule), *ADAM, "--checkpoint.every_steps", 0]
    if schedule == "interleaved":
        words[1] = "[32, 48, 48, 48, 48, 48, 10]"
    run = elastic(yoke, tmp_path / "run", *words, "--steps", STEPS, ranks=3, faults=[kill(victim, step)], quiet=False)
    summary = summary_of(tmp_path / "run")
    assert summary["mesh"]["pipeline"] == 2 and summary["world_size"] == 2
    assert f"stage {victim} of epoch 0 is rebuilt" in run.err and "pipeline=2 on 2 ranks; 3 stages were asked for" in run.err
    expect_same(yoke, tmp_path, words, ranks=3)


def test_one_rank_after_the_other_may_be_lost_until_one_has_the_whole_model(yoke, tmp_path):
    words = [*layout(), "--checkpoint.every_steps", 0]
    elastic(yoke, tmp_path / "run", *words, "--steps", STEPS, ranks=4, faults=[kill(1, 5), kill(0, 9), kill(3, 13, "comm.collective.begin")])
    elastic(yoke, tmp_path / "plain", *words, "--steps", STEPS, ranks=4)
    summary = summary_of(tmp_path / "run")
    assert summary["elastic"]["losses"] == 3 and summary["world_size"] == 1
    # A rank without a pipeline computes a batch at once.
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "plain"), rel=1e-4)


def test_a_spare_may_be_lost(yoke, tmp_path):
    words = [*layout(), "--checkpoint.every_steps", 0]
    run = elastic(yoke, tmp_path / "run", *words, "--steps", STEPS, ranks=4, faults=[kill(3, 7, "comm.collective.begin")], quiet=False)
    assert "spare (rank 3)" in run.err and "rebuilt" not in run.err
    assert summary_of(tmp_path / "run")["elastic"]["losses"] == 1
    expect_same(yoke, tmp_path, words, ranks=4)


def test_two_may_be_lost_at_once(yoke, tmp_path):
    words = [*layout(), "--checkpoint.every_steps", 0]
    # Rank 3, a spare, has the copy of stage 2, and rank 1 that of stage 0.
    run = elastic(yoke, tmp_path / "run", *words, "--steps", STEPS, ranks=5, faults=[kill(0, 8, "comm.collective.begin"), kill(2, 8, "comm.collective.begin")],
                  quiet=False)
    assert summary_of(tmp_path / "run")["mesh"]["pipeline"] == 3
    assert "rebuilt" in run.err
    expect_same(yoke, tmp_path, words, ranks=5)


def test_a_stage_without_copies_comes_from_the_checkpoint(yoke, tmp_path):
    words = [*layout(), "--elastic.replicas", 0]
    run = elastic(yoke, tmp_path / "run", *words, "--steps", 40, "--checkpoint.every_steps", 10, "--checkpoint.background", "false", ranks=4,
                  faults=[kill(1, 27, "comm.collective.begin")], quiet=False)
    # A stage that was still in its update when the death was noticed has no shard of a finished step either.
    assert re.search(r"nobody has stages? [\d, ]*1[\d, ]* \(elastic.replicas = 0\): all ranks go back to \S*step-20; [56] steps are repeated", run.err), run.err
    expect_same(yoke, tmp_path, words, ranks=4, steps=40)


def test_neighbours_that_are_lost_together_cost_the_steps_since_the_checkpoint(yoke, tmp_path):
    words = [*layout(), "--checkpoint.every_steps", 20]
    with Job(tmp_path / "run", *words, "--out.log_every", 1, ranks=5) as job:
        job.wait_for_step(tmp_path / "run", 45)
        pids = [job.pid_of(1), job.pid_of(2)]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # a stopped rank does not regroup: both are lost in one epoch
            for pid in pids:
                os.kill(pid, number)
        job.wait_for(r"nobody has stages? [\d, ]*1[\d, ]* \(elastic.replicas = 1\): all ranks go back to \S*step-\d+; \d+ steps are repeated")
        job.wait_for(r"epoch 1: step \d+ finished")
        assert job.stop() == 143
    ours = losses(tmp_path / "run")
    elastic(yoke, tmp_path / "plain", *words, "--steps", 60, ranks=5)
    assert ours[:60] == losses(tmp_path / "plain")[:len(ours)]
    steps = [row["step"] for row in records(tmp_path / "run")]
    assert steps == list(range(1, len(steps) + 1))


def test_a_lost_stage_without_a_checkpoint_is_an_error_that_names_it(yoke, tmp_path):
    failed = elastic(yoke, tmp_path / "run", *layout(), "--steps", 100000, "--elastic.replicas", 0, "--checkpoint.every_steps", 0, ranks=4,
                     faults=[kill(1, 9, "comm.collective.begin")], code=5, timeout=60)
    assert re.search(r"nobody has stages? [\d, ]*1[\d, ]* \(elastic.replicas = 0\)", failed.err) and "has no checkpoint of this run" in failed.err


@pytest.mark.parametrize("at", ["pipeline.send", "comm.collective.begin"])
def test_a_stalled_stage_is_evicted(yoke, tmp_path, at):
    words = [*layout(), "--checkpoint.every_steps", 0]
    run = elastic(yoke, tmp_path / "run", *words, "--steps", STEPS, ranks=4, faults=[f"rank=1,step=7,at={at}:stop"], quiet=False, timeout=120)
    assert re.search("no heartbeat|SIGSTOP", run.err) and "stage 1 of epoch 0 is rebuilt" in run.err
    expect_same(yoke, tmp_path, words, ranks=4)


def test_statistics_of_a_stage_are_put_back(yoke, tmp_path):
    recipe = tmp_path / "empty.toml"
    recipe.write_text("")
    words = ["train", recipe, "--model.name", "resnet18", "--model.image_size", 32, "--model.classes", 4, "--data.name", "synthetic", "--data.samples", 64,
             "--data.batch_size", 8, "--train.threads", 1, "--train.deterministic", "--train.evaluate", "false", "--out.log_every", 1, "--json", "-q",
             "--train.lr", 0.01, "--parallel.pipeline", 2, "--parallel.data", 1, "--pipeline.microbatches", 4, "--nproc", 3, "--elastic", "--steps", 4,
             "--checkpoint.every_steps", 0]
    yoke(*words, "--out.dir", tmp_path / "run", env={"YOKE_FAULT": kill(0, 3, hit=3)})
    yoke(*words, "--out.dir", tmp_path / "plain")
    assert summary_of(tmp_path / "run")["elastic"]["losses"] == 1
    assert summary_of(tmp_path / "run")["parameter_hash"] == summary_of(tmp_path / "plain")["parameter_hash"]  # of parameters and buffers


@pytest.mark.parametrize("kills,mesh", [([1], (2, 1)), ([0, 1], (2, 1)), ([2, 0], (2, 1)), ([0, 1, 3], (1, 1))])
def test_a_pipeline_with_replicas_loses_some(yoke, tmp_path, kills, mesh):
    words = [*layout(stages=2, data=2), *ADAM, "--steps", STEPS, "--checkpoint.every_steps", 0]
    faults = [kill(rank, 6 + 4 * i, "comm.collective.begin") for i, rank in enumerate(kills)]
    elastic(yoke, tmp_path / "run", *words, ranks=4, faults=faults)
    elastic(yoke, tmp_path / "plain", *words, ranks=4)
    summary = summary_of(tmp_path / "run")
    assert (summary["mesh"]["pipeline"], summary["mesh"]["data"]) == mesh and summary["elastic"]["losses"] == len(kills)
    ours, theirs = records(tmp_path / "run"), records(tmp_path / "plain")
    assert [row["samples"] for row in ours] == [row["samples"] for row in theirs]
    assert [row["loss"] for row in ours] == pytest.approx([row["loss"] for row in theirs], rel=1e-3)


def test_a_rank_may_be_lost_while_stages_move(yoke, tmp_path):
    words = [*layout(), "--checkpoint.every_steps", 0]
    elastic(yoke, tmp_path / "run", *words, "--steps", STEPS, ranks=5, faults=[kill(1, 6), "rank=3,at=elastic.rebuild:kill"])
    summary = summary_of(tmp_path / "run")
    assert summary["elastic"]["losses"] == 2 and summary["elastic"]["epochs"] == 3 and summary["world_size"] == 3
    expect_same(yoke, tmp_path, words, ranks=5)


def test_with_an_evaluation_and_a_last_checkpoint_a_spare_takes_part(yoke, tmp_path):
    words = [*layout(), "--steps", 12, "--train.evaluate", "true", "--checkpoint.every_steps", 5]
    elastic(yoke, tmp_path / "run", *words, ranks=5, faults=[kill(2, 7)])
    elastic(yoke, tmp_path / "plain", *words, ranks=3)
    run, plain = summary_of(tmp_path / "run"), summary_of(tmp_path / "plain")
    assert run["eval_loss"] == plain["eval_loss"] and run["parameter_hash"] == plain["parameter_hash"]
    more = elastic(yoke, tmp_path / "run", *layout(), "--steps", 15, "--checkpoint.every_steps", 5, ranks=4, quiet=False)
    assert "resuming from" in more.err and summary_of(tmp_path / "run")["steps"] == 15


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_stage_that_is_asked_to_leave_hands_its_state_over(tmp_path, replicas):
    with Job(tmp_path / "run", *layout(), "--elastic.replicas", replicas, "--checkpoint.every_steps", 0, run=["--elastic"], ranks=4) as job:
        job.wait_for_step(tmp_path / "run", 20)
        os.kill(job.pid_of(1), signal.SIGTERM)
        job.wait_for(r"epoch 1: step \d+ finished")
        assert job.stop() == 143
    assert "error" not in "".join(job.log)
    elastic_summary = summary_of(tmp_path / "run")["elastic"]
    assert elastic_summary["repeated"] == 0 and elastic_summary["losses"] == 0


def test_a_killed_rank_returns_and_the_stages_are_cut_as_asked_for(tmp_path):
    with Job(tmp_path / "run", *layout(), "--checkpoint.every_steps", 0, "--elastic.restarts", 1, "--out.log_every", 1) as job:
        job.wait_for_step(tmp_path / "run", 20)
        os.kill(job.pid_of(1), signal.SIGKILL)
        job.wait_for_all_ranks(3)
        assert job.stop() == 143
    summary = summary_of(tmp_path / "run")
    assert summary["elastic"]["losses"] == 1 and summary["elastic"]["joins"] == 1 and summary["mesh"]["pipeline"] == 3
    steps = [row["step"] for row in records(tmp_path / "run")]
    assert steps == list(range(1, len(steps) + 1))


def test_too_few_ranks_for_the_stages_are_refused_at_the_start(yoke, tmp_path):
    failed = yoke("train", ROOT / "configs/mlp_tiny.toml", *layout(), "--nproc", 2, "--elastic", "--out.dir", tmp_path / "run", code=2)
    assert "2 ranks were started. Next: start 3 or more (--nproc)" in failed.err and not (tmp_path / "run").exists()


def test_tied_weights_are_held_by_two_stages(yoke, tmp_path):
    recipe = tmp_path / "gpt2.toml"
    recipe.write_text("")
    words = ["train", recipe, "--model.name", "gpt2", "--model.layers", 2, "--model.width", 32, "--model.heads", 2, "--model.vocabulary", 128,
             "--data.name", "synthetic", "--data.samples", 64, "--data.seq_len", 16, "--data.batch_size", 8, "--train.threads", 1, "--train.deterministic",
             "--train.evaluate", "false", "--train.ema", 0.9, "--out.log_every", 1, "--json", "-q", *ADAM, "--parallel.pipeline", 3, "--parallel.data", 1,
             "--nproc", 3, "--elastic", "--steps", 6, "--checkpoint.every_steps", 0, "--parallel.backend", "tcp"]
    yoke(*words, "--out.dir", tmp_path / "run", env={"YOKE_FAULT": kill(2, 4, hit=2)})
    yoke(*words, "--out.dir", tmp_path / "plain")
    assert summary_of(tmp_path / "run")["mesh"]["pipeline"] == 2
    assert losses(tmp_path / "run") == pytest.approx(losses(tmp_path / "plain"), rel=1e-4)


def test_ranks_that_join_are_replicas_or_spares(tmp_path):
    with Job(tmp_path / "run", *layout(stages=2, data=0), "--checkpoint.every_steps", 0, "--elastic.restarts", 1, "--out.log_every", 1, ranks=5) as job:
        job.wait_for_step(tmp_path / "run", 20)
        os.kill(job.pid_of(0), signal.SIGKILL)
        job.wait_for_all_ranks(5)
        assert job.stop() == 143
    assert "epoch 0: pipeline=2,data=2 on 5 ranks, 1 of them spare" in "".join(job.log)
    summary = summary_of(tmp_path / "run")
    assert (summary["mesh"]["pipeline"], summary["mesh"]["data"], summary["world_size"]) == (2, 2, 5)
    rows = records(tmp_path / "run")
    assert len({b["samples"] - a["samples"] for a, b in zip(rows, rows[1:])}) <= 2  # the global batch, and what is left of an epoch


def test_a_gradient_that_is_not_finite_ends_the_run_on_spares_too(yoke, tmp_path):
    words = [*layout(), "--steps", 60, "--checkpoint.every_steps", 1, "--train.lr", 1e30]
    failed = elastic(yoke, tmp_path / "stop", *words, ranks=4, code=2, timeout=60)
    assert "the loss is not finite (first parameter with a non-finite gradient: layers.0.weight)" in failed.err and "go back to" not in failed.err
    elastic(yoke, tmp_path / "skip", *words, "--train.non_finite", "skip", ranks=4)
    assert summary_of(tmp_path / "skip")["steps"] == 60
