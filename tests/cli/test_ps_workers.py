"""Workers of parameter servers that join and leave while training continues."""
import json
import os
import signal

import pytest
from conftest import ROOT
from running_job import Started, await_version

MLP, SPARSE = ROOT / "configs/mlp_tiny.toml", ROOT / "configs/sparse_lr.toml"
ENVIRONMENT = dict(os.environ)
BATCH, SAMPLES = 32, 1000  # 32 batches an epoch, the last one smaller


def training(folder, *words, config=MLP, workers=2, most=4, policy="sync", steps=10**6):
    words = ["train", config, "--nproc", workers, "--parallel.sync", "ps", "--ps.servers", 2, "--ps.policy", policy, "--ps.max_workers", most,
             "--ps.log_updates", "--data.samples", SAMPLES, "--data.batch_size", BATCH, "--train.threads", 1, "--no-train.evaluate", "--out.dir", folder,
             "--steps", steps, "--json", *words]
    return [str(word) for word in words]


def job(folder, *words, env=None, **options):
    return Started(folder, training(folder, *words, **options), env=env)


def joiner(folder, name, *words, env=None):
    return Started(f"{folder}.{name}", ["ps", "join", folder, "--worker", *words], env=env)


def states(seen):
    return {worker["id"]: worker["state"] for worker in seen["workers"]}


STOPPED = 128 + signal.SIGTERM


def stop(run):
    run.process.terminate()
    assert run.end() == STOPPED, run.said()


def check_each_batch_once(folder, workers):
    """By what each update has used, and by the count of the scheduler. Gradients that were in flight at the end are in no update."""
    lines = [json.loads(line) for line in (folder / "updates.jsonl").read_text().splitlines()]
    used = [batch for line in lines for batch in line["batches"]]
    assert len(used) == len(set(used))
    counted = json.loads((folder / "ps.json").read_text())["batches"]
    assert counted["twice"] == 0
    assert 0 <= counted["used"] - len(used) <= workers
    assert len(set(range(counted["complete"])) - set(used)) <= workers
    assert max(used) + 1 - len(used) <= workers
    return lines


@pytest.mark.parametrize("policy", ["sync", "async"])
@pytest.mark.parametrize("tables", [False, True], ids=["ranges", "tables"])
def test_a_worker_joins_and_another_leaves(yoke, tmp_path, policy, tables):
    folder = tmp_path / "run"
    words = ["--ps.sparse", "on"] if tables else []
    with job(folder, *words, config=SPARSE if tables else MLP, policy=policy) as run:
        await_version(yoke, folder)
        with joiner(folder, "a") as late:
            run.await_words("worker 2 joined at version")
            assert "joined as worker 2" in late.said()
            seen = await_version(yoke, folder)
            assert set(states(seen)) == {0, 1, 2}
            await_version(yoke, folder, seen["version"] + 20)
            assert yoke("ps", "leave", folder, "--worker", 1, "--json").json["worker"] == 1
            seen = await_version(yoke, folder)
            assert states(seen)[1] == "left" and states(seen)[2] in ("computing", "waiting")
            await_version(yoke, folder, seen["version"] + 20)
            stop(run)
            assert late.end() in (0, STOPPED), late.said()
    lines = check_each_batch_once(folder, 4)
    counted = json.loads((folder / "ps.json").read_text())
    assert ("sparse" in counted) == tables
    # Also of the one that has left before, and of the one that has joined.
    assert not tables or [one["worker"] for one in counted["sparse"]["workers"]] == [0, 1, 2]
    if policy == "sync":
        sizes = [len(line["batches"]) for line in lines]
        assert sizes[0] == 2 and max(sizes) == 3 and sizes[-1] in (1, 2)


def test_the_run_ends_after_its_steps(yoke, tmp_path):
    with job(tmp_path / "run", steps=500) as run:
        assert run.end() == 0, run.said()
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["steps"] == 500
    lines = check_each_batch_once(tmp_path / "run", 1)
    assert [sorted(line["batches"]) for line in lines] == [[2 * step, 2 * step + 1] for step in range(500)]


def test_a_worker_that_joins_leaves_at_a_signal(yoke, tmp_path):
    with job(tmp_path / "run") as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a") as late:
            run.await_words("worker 2 joined at version")
            seen = await_version(yoke, tmp_path / "run")
            await_version(yoke, tmp_path / "run", seen["version"] + 5)
            late.process.send_signal(signal.SIGTERM)
            assert late.end() == 0, late.said()
        run.await_words("worker 2 leaves at version")
        stop(run)
    check_each_batch_once(tmp_path / "run", 4)


def test_two_join_at_once(yoke, tmp_path):
    with job(tmp_path / "run") as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a") as one, joiner(tmp_path / "run", "b") as other:
            run.await_words("worker 2 joined at version")
            run.await_words("worker 3 joined at version")
            assert "places" in yoke("ps", "join", tmp_path / "run", "--worker", code=None).err
            stop(run)
            assert one.end() in (0, STOPPED) and other.end() in (0, STOPPED)
    check_each_batch_once(tmp_path / "run", 4)


@pytest.mark.parametrize("fault", ["at=ps.push,hit=20:kill", "at=ps.join:kill", "at=ps.pull:kill"])
def test_a_worker_that_joins_is_killed(yoke, tmp_path, fault):
    with job(tmp_path / "run") as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a", env={**ENVIRONMENT, "YOKE_FAULT": fault}) as dies:
            assert dies.end() == -9
        run.await_words("worker 2 was lost before it had joined" if "ps.join" in fault else "worker 2 is lost")
        with joiner(tmp_path / "run", "b") as again:
            run.await_words("worker 3 joined at version")
            stop(run)
            assert again.end() in (0, STOPPED), again.said()
    check_each_batch_once(tmp_path / "run", 4)


def test_too_few_workers_end_the_job_with_the_reason(yoke, tmp_path):
    with job(tmp_path / "run", "--ps.min_workers", 2, env={**ENVIRONMENT, "YOKE_FAULT": "rank=1,at=ps.push,hit=300:kill"}) as run:
        await_version(yoke, tmp_path / "run")
        assert run.end() != 0
        assert "worker 1 is lost: 1 left, and ps.min_workers = 2" in run.said()


def test_who_cannot_join_or_leave(yoke, tmp_path):
    with job(tmp_path / "fixed", most=0) as run:
        await_version(yoke, tmp_path / "fixed")
        assert "ps.max_workers" in yoke("ps", "join", tmp_path / "fixed", "--worker", code=2).err
        assert "ps.max_workers" in yoke("ps", "leave", tmp_path / "fixed", "--worker", 1, code=2).err
        assert run.process.poll() is None
    with job(tmp_path / "run", "--ps.min_workers", 2, most=3) as run:
        await_version(yoke, tmp_path / "run")
        other = tmp_path / "other.toml"
        saved = (tmp_path / "run/config.toml").read_text()
        for old, new, says in [(f"batch_size = {BATCH}", "batch_size = 16", "data.batch_size"), ("momentum = 0.9", "momentum = 0.8", "momentum"),
                               ("sizes = [32, 64, 10]", "sizes = [32, 16, 10]", "model.sizes")]:
            assert old in saved
            other.write_text(saved.replace(old, new))
            refused = yoke("ps", "join", tmp_path / "run", "--worker", "--config", other, code=2).err
            assert "another configuration" in refused and says in refused
        assert "max_servers" in yoke("ps", "join", tmp_path / "run", code=2).err
        for worker, says in [(0, "records and checkpoints"), (1, "ps.min_workers = 2"), (2, "not in this job")]:
            assert says in yoke("ps", "leave", tmp_path / "run", "--worker", worker, code=2).err
        assert "which one" in yoke("ps", "leave", tmp_path / "run", code=2).err
        run.process.terminate()
    assert "no job runs there" in yoke("ps", "join", tmp_path / "run", "--worker", code=2).err


@pytest.mark.parametrize("words,says", [
    (["--ps.max_workers", 1], "the job starts with more"),
    (["--ps.min_workers", 3], "the job starts with fewer"),
    (["--ps.place", "colocated"], "ps.place"),
    (["--parallel.pipeline", 2], "replica of several ranks"),
    (["--ps.on_worker_loss", "stop"], "ps.on_worker_loss"),
    (["--ps.n_push", 2, "--ps.policy", "async"], "ps.n_push"),
    (["--train.non_finite", "skip"], "train.non_finite"),
    (["--train.optimizer", "lbfgs", "--train.momentum", 0], "lbfgs"),
])
def test_mistakes(yoke, tmp_path, words, says):
    assert says in yoke(*training(tmp_path / "run", *words), code=2).err
