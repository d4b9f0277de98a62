"""`yoke run` on several machines: two launchers on this one, which know each other only by their flags."""
import os
import signal

import pytest
from conftest import YOKE
from launching import Job, alive, wait_until
from ports import free_port

PROGRAM = YOKE.parent / "yoke_rank_program"


@pytest.fixture
def nodes(tmp_path):
    """Starts one launcher a node, with sizes as given, all with the same words."""
    key = tmp_path / "key"
    key.write_bytes(os.urandom(32))
    key.chmod(0o600)
    port = free_port()
    started = []

    def start(sizes, *words, keys=None):
        for rank, size in enumerate(sizes):
            folder = tmp_path / f"node{rank}"
            folder.mkdir()
            hosts = ",".join(f"node{i}.invalid:{n}" for i, n in enumerate(sizes))
            started.append(Job(folder, "-q", "-H", hosts, "--node-rank", rank, "--rdzv-endpoint", f"127.0.0.1:{port}",
                               "--secret-file", (keys or [key] * len(sizes))[rank], *words))
        return started

    yield start
    for one in started:
        one.end()


def test_ranks_of_two_nodes_meet(nodes):
    jobs = nodes([2, 1], PROGRAM, "tcp", 3, 4000)
    assert [job.wait() for job in jobs] == [0, 0], jobs[0].err + jobs[1].err
    assert "[rank 1|node0] rank 1 of 3 over tcp: 3 steps" in jobs[0].out
    assert jobs[1].out == "[rank 2|node1] rank 2 of 3 over tcp: 3 steps\n"


def test_a_rank_killed_on_the_other_node_is_named_on_both(nodes):
    jobs = nodes([1, 2], PROGRAM, "tcp", 5, 4000, "kill", 2, 2)
    assert jobs[1].wait() == 128 + signal.SIGKILL and "was killed by signal 9 (SIGKILL)" in jobs[1].err
    assert jobs[0].wait() == 128 + signal.SIGKILL
    box = jobs[0].err[jobs[0].err.index("+- the job failed"):]
    assert "root cause  rank 2" in box and "was killed by signal 9 (SIGKILL)" in box, jobs[0].err


def test_the_first_node_ends_with_the_status_of_the_culprit_elsewhere(nodes):
    jobs = nodes([1, 1], "/bin/sh", "-c", "[ $YOKE_RANK = 1 ] && exit 77; exec sleep 60")
    assert [job.wait() for job in jobs] == [77, 77], jobs[0].err + jobs[1].err
    assert "exited with code 77" in jobs[0].err


def test_both_nodes_restart_together(nodes):
    script = f'[ $YOKE_GENERATION = 0 ] && exec {PROGRAM} tcp 5 4000 kill 1 2; exec {PROGRAM} tcp 5 4000'
    jobs = nodes([1, 1], "--max-restarts", 1, "/bin/sh", "-c", script)
    assert [job.wait(90) for job in jobs] == [0, 0], jobs[0].err + jobs[1].err
    for job in jobs:
        assert "of 2 over tcp: 5 steps" in job.out and "Restarting all ranks (1 of 1)" in job.err


def test_the_first_node_stays_until_the_other_is_done(nodes):
    # Rank 1 goes on after rank 0 has left; without its coordinator it would fail.
    script = f'{PROGRAM} tcp 3 4000; [ $YOKE_RANK = 0 ] || {{ sleep 1; echo later; }}'
    jobs = nodes([1, 1], "/bin/sh", "-c", script)
    assert [job.wait() for job in jobs] == [0, 0], jobs[0].err + jobs[1].err
    assert "later" in jobs[1].out


def test_another_key_is_refused(nodes, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(os.urandom(32))
    other.chmod(0o600)
    jobs = nodes([1, 1], "--join-timeout", 4, PROGRAM, "tcp", 3, 4000, keys=[tmp_path / "key", other])
    assert jobs[1].wait() == 4, jobs[1].err
    assert jobs[0].wait() == 4
    for job, says in ((jobs[0], "but does not have the job's key. Next: the same key"), (jobs[1], "the same key")):
        box = " ".join(job.err[job.err.index("+- the job failed"):].replace("|", " ").split())
        assert says in box and "(--secret-file, --rdzv-id)" in box and "that they can reach" not in box, job.err


def test_killing_one_launcher_ends_both_nodes(nodes):
    script = f'echo pids $$; exec {PROGRAM} tcp 100000 4000'
    # The launcher may die before the ranks have met: whoever waits for them then does so for 3 s.
    jobs = nodes([1, 1], "--join-timeout", 3, "/bin/sh", "-c", script)
    for job in jobs:
        job.wait_for_lines(1, "pids")
    pids = [int(job.out.split()[-1]) for job in jobs]
    jobs[1].signal(signal.SIGKILL)
    jobs[1].process.wait(10)
    wait_until(lambda: not alive(pids[1]), 2)
    assert jobs[0].wait(40) != 0 and not alive(pids[0])
