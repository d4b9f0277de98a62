"""Parameter servers that join and leave while training continues, without copies and with them."""
import json
import os

import pytest
from conftest import ROOT
from running_job import Started, await_version

MLP = ROOT / "configs/mlp_tiny.toml"
WORKERS, SERVERS = 2, 2
ENVIRONMENT = dict(os.environ)


def training(folder, *words, replicas=0, places=4):
    words = ["train", MLP, "--nproc", WORKERS, "--parallel.sync", "ps", "--ps.servers", SERVERS, "--ps.max_servers", places, "--ps.replicas", replicas,
             "--ps.range_bytes", "1KB", "--train.threads", 1, "--no-train.evaluate", "--train.momentum", 0.9, "--train.clip_norm", 0.5,
             "--out.dir", folder, "--json", *words]
    return [str(word) for word in words]


def job(folder, *words, env=None, **options):
    return Started(folder, training(folder, *words, **options), env=env)


def joiner(folder, name, *words, env=None):
    return Started(f"{folder}.{name}", ["ps", "join", folder, *words], env=env)


# Whoever comes and goes takes as long as it takes: these jobs have no end of their own.
ENDLESS = ["--steps", 10**6]


def end_as_undisturbed(yoke, run, folder, replicas=0):
    """Stops a job, and compares it with one of as many steps from which nobody came or went."""
    ended = run.stop()
    whole = yoke(*training(folder, "--steps", ended["steps"], replicas=replicas)).json
    assert ended["parameter_hash"] == whole["parameter_hash"]


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_server_joins_and_the_result_has_the_same_bits(yoke, tmp_path, replicas):
    with job(tmp_path / "run", *ENDLESS, replicas=replicas) as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a") as late:
            late.await_words("joined as parameter server 2")
            run.await_words("parameter server 2 (rank 4) serves home", times=2)
            seen = await_version(yoke, tmp_path / "run")
            assert [server["id"] for server in seen["servers"]] == [0, 1, 2]
            assert min(server["ranges"] for server in seen["servers"]) > 0
            end_as_undisturbed(yoke, run, tmp_path / "whole", replicas)
            assert late.end() == 0, late.said()
    assert json.loads((tmp_path / "run/ps.json").read_text())["servers_lost"] == 0


def test_a_server_leaves_without_copies(yoke, tmp_path):
    with job(tmp_path / "run", *ENDLESS) as run:
        await_version(yoke, tmp_path / "run")
        assert yoke("ps", "leave", tmp_path / "run", 0, "--json").json["server"] == 0
        assert "the last server" in yoke("ps", "leave", tmp_path / "run", 1, code=2).err
        seen = await_version(yoke, tmp_path / "run")
        assert [server["id"] for server in seen["servers"]] == [1] and seen["servers"][0]["schedules"]
        end_as_undisturbed(yoke, run, tmp_path / "whole")
        assert "serves home 0 now, in place of parameter server 0 (rank 2), and runs the scheduler" in run.said()


def test_a_joiner_that_dies_in_the_copy_changes_nothing(yoke, tmp_path):
    with job(tmp_path / "run", *ENDLESS) as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a", env={**ENVIRONMENT, "YOKE_FAULT": "at=ps.take_copy,hit=3:kill"}) as dies:
            assert dies.end() == -9
        run.await_words("parameter server 2 (rank 4) is lost")
        with joiner(tmp_path / "run", "b") as next_one:
            next_one.await_words("joined as parameter server 3")
            run.await_words("parameter server 3 (rank 5) serves home")
            end_as_undisturbed(yoke, run, tmp_path / "whole")
            assert next_one.end() == 0, next_one.said()


def test_a_joiner_that_dies_as_it_is_about_to_serve_leaves_the_parameters_to_the_owner(yoke, tmp_path):
    with job(tmp_path / "run", *ENDLESS) as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a", env={**ENVIRONMENT, "YOKE_FAULT": "at=ps.claim:kill"}) as dies:
            assert dies.end() == -9
        run.await_words("parameter server 2 (rank 4) is lost")
        run.await_words("parameter server 0 (rank 2) keeps the parameters that were to move there")
        end_as_undisturbed(yoke, run, tmp_path / "whole")
        assert "no other server is left" not in run.said() and "Redundancy" not in run.said()


def test_a_joiner_that_dies_once_it_serves_is_replaced_by_copies(yoke, tmp_path):
    with job(tmp_path / "run", *ENDLESS, replicas=1) as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a") as late:
            run.await_words("parameter server 2 (rank 4) serves home", times=2)
            late.process.kill()
        run.await_words("parameter server 2 (rank 4) is lost")
        run.await_words("took over its parameters")
        end_as_undisturbed(yoke, run, tmp_path / "whole", replicas=1)


def test_an_owner_that_dies_in_the_hand_over_is_replaced_by_a_copy(yoke, tmp_path):
    with job(tmp_path / "run", *ENDLESS, replicas=1, env={**ENVIRONMENT, "YOKE_FAULT": "rank=2,at=ps.hand_over:kill"}) as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a") as late:
            run.await_words("parameter server 0 (rank 2) is lost")
            run.await_words("took over its parameters")
            end_as_undisturbed(yoke, run, tmp_path / "whole", replicas=1)
            assert late.end() == 0, late.said()


def test_without_copies_an_owner_that_dies_ends_the_job_with_its_name(yoke, tmp_path):
    with job(tmp_path / "run", "--steps", 10**6, "--ps.on_server_loss", "stop", env={**ENVIRONMENT, "YOKE_FAULT": "rank=2,at=ps.hand_over:kill"}) as run:
        await_version(yoke, tmp_path / "run")
        with joiner(tmp_path / "run", "a") as late:
            assert run.end() != 0
            assert late.end() != 0
        assert "parameter server 0 (rank 2)" in run.said()


def test_who_cannot_join(yoke, tmp_path):
    with job(tmp_path / "fixed", "--steps", 10**6, places=0) as run:
        await_version(yoke, tmp_path / "fixed")
        assert "ps.max_servers" in yoke("ps", "join", tmp_path / "fixed", code=2).err
        assert run.process.poll() is None
    with job(tmp_path / "full", "--steps", 10**6, places=2) as run:
        await_version(yoke, tmp_path / "full")
        assert "no place for another rank" in yoke("ps", "join", tmp_path / "full", code=None).err
    with job(tmp_path / "run", "--steps", 10**6, places=3) as run:
        await_version(yoke, tmp_path / "run")
        other = tmp_path / "other.toml"
        other.write_text((tmp_path / "run/config.toml").read_text().replace("momentum = 0.9", "momentum = 0.8"))
        assert "another configuration" in yoke("ps", "join", tmp_path / "run", "--config", other, code=2).err
        with joiner(tmp_path / "run", "a") as late:
            late.await_words("joined as parameter server 2")
            assert "all 1 places" in yoke("ps", "join", tmp_path / "run", code=None).err
            run.process.terminate()
    assert "no job runs there" in yoke("ps", "join", tmp_path / "run", code=2).err


@pytest.mark.parametrize("words,says", [
    (["--ps.max_servers", 1], "the job starts with more"),
    (["--ps.place", "colocated"], "cannot join or leave"),
])
def test_mistakes(yoke, tmp_path, words, says):
    assert says in yoke(*training(tmp_path / "run", *words), code=2).err
