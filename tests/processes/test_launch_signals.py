"""`yoke run` and signals: to it, to its ranks, and none left behind."""
import os
import signal
import subprocess
import time

import pytest
from conftest import ROOT, YOKE
from launching import Job, alive, clean_environment, wait_until


@pytest.fixture
def job(tmp_path):
    started = []

    def start(*words, **options):
        started.append(Job(tmp_path, *words, **options))
        return started[-1]

    yield start
    for one in started:
        one.end()


def sh(text):
    return ["/bin/sh", "-c", text]


def pids(run):
    return [int(word) for line in run.out.splitlines() if "pids" in line for word in line.split("pids")[1].split()]


def test_killing_the_launcher_leaves_nobody(job):
    # A child, a grandchild, and one that ignores what can be ignored.
    run = job("--nproc", 2, *sh("trap '' TERM HUP INT; sleep 600 & echo pids $$ $!; wait; wait; sleep 600"))
    run.wait_for_lines(2, "pids")
    everybody = pids(run)
    assert len(everybody) == 4 and all(map(alive, everybody))
    run.signal(signal.SIGKILL)
    run.process.wait(10)
    wait_until(lambda: not any(map(alive, everybody)), 2, lambda: f"left: {[p for p in everybody if alive(p)]}")


def test_what_left_its_session_ends_with_the_job(job):
    run = job("--nproc", 2, *sh("setsid sleep 600 & echo pids $!; sleep 0.2"))
    assert run.wait(20) == 0
    assert len(pids(run)) == 2 and not any(map(alive, pids(run)))


def test_a_daemon_lives_as_long_as_its_rank(job, tmp_path):
    daemon = "(setsid sh -c 'echo $$ > $PID_FILE.new; mv $PID_FILE.new $PID_FILE; exec sleep 600' &)"
    wait = "while [ ! -e $PID_FILE ]; do sleep 0.01; done; sleep 0.3; kill -0 $(cat $PID_FILE) && echo pids $(cat $PID_FILE)"
    run = job("--nproc", 1, *sh(f"{daemon}; {wait}"), env={"PID_FILE": tmp_path / "pid"})
    assert run.wait(20) == 0
    assert len(pids(run)) == 1 and not any(map(alive, pids(run)))


def test_the_first_interrupt_is_gentle(job):
    run = job("--nproc", 2, *sh("trap 'echo saved; exit 0' INT; echo ready; while :; do sleep 0.05; done"))
    run.wait_for_lines(2, "ready")
    run.signal(signal.SIGINT)
    assert run.wait() == 0
    assert run.out.count("saved") == 2 and "the job failed" not in run.err


def test_the_second_interrupt_kills(job):
    run = job("--nproc", 2, *sh("trap 'echo heard' INT; echo ready pids $$; while :; do sleep 0.05; done"))
    run.wait_for_lines(2, "ready")
    everybody = pids(run)
    run.signal(signal.SIGINT)
    run.wait_for_lines(2, "heard")
    begin = time.monotonic()
    run.signal(signal.SIGINT)
    assert run.wait(8) == 137
    assert time.monotonic() - begin < 8 and not any(map(alive, everybody))


def test_an_interrupted_job_says_130(job):
    run = job("--nproc", 2, *sh("echo ready; exec sleep 60"))
    run.wait_for_lines(2, "ready")
    run.signal(signal.SIGINT)
    assert run.wait() == 130 and "the job failed" not in run.err


@pytest.mark.parametrize("name", ["TERM", "HUP", "QUIT", "USR1", "USR2", "XCPU"])
def test_signals_are_passed_on(job, name):
    run = job("--nproc", 2, *sh(f"trap 'echo got {name}; exit 0' {name}; echo ready; while :; do sleep 0.05; done"))
    run.wait_for_lines(2, "ready")
    run.signal(getattr(signal, "SIG" + name))
    assert run.wait() == 0
    assert run.out.count(f"got {name}") == 2


@pytest.mark.parametrize("name", ["USR1", "USR2", "XCPU"])
def test_ranks_that_save_and_stop_on_a_signal_have_not_failed(job, name):
    number = getattr(signal, "SIG" + name)
    run = job("--nproc", 2, *sh(f"trap 'echo saved; exit {128 + number}' {name}; echo ready; while :; do sleep 0.05; done"))
    run.wait_for_lines(2, "ready")
    run.signal(number)
    assert run.wait() == 128 + number
    assert run.out.count("saved") == 2 and "the job failed" not in run.err


def test_a_job_goes_on_after_a_signal_that_means_something_else(job):
    run = job("--nproc", 2, *sh("trap 'n=1' USR1; echo ready; while [ -z $n ]; do sleep 0.05; done; sleep 0.3; echo done"))
    run.wait_for_lines(2, "ready")
    run.signal(signal.SIGUSR1)
    assert run.wait() == 0 and run.out.count("done") == 2


def test_a_stopped_rank_hears_that_the_job_is_to_end(job):
    run = job("--nproc", 2, *sh("trap 'echo saved; exit 143' TERM; echo ready pids $$; [ $YOKE_RANK = 1 ] && kill -STOP $$; while :; do sleep 0.05; done"))
    run.wait_for_lines(2, "ready")
    stopped = pids(run)
    wait_until(lambda: any(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "T" for pid in stopped), 20)
    run.signal(signal.SIGTERM)
    assert run.wait(20) == 143 and run.out.count("saved") == 2


def test_deaf_ranks_are_killed_after_a_failure(job):
    run = job("--nproc", 2, *sh("trap '' TERM; [ $YOKE_RANK = 1 ] && exit 7; echo pids $$; while :; do sleep 0.05; done"))
    run.wait_for_lines(1, "pids")
    everybody = pids(run)
    assert run.wait(30) == 7
    assert not any(map(alive, everybody))


def test_a_closed_stdout_ends_the_job(tmp_path):
    command = f"{YOKE} run --nproc 2 yes | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=clean_environment(), cwd=ROOT, timeout=60)
    assert result.stdout.splitlines()[0].startswith("[rank ") and result.stdout.splitlines()[1] == "141"


def test_a_stalled_reader_does_not_make_it_deaf(tmp_path):
    process = subprocess.Popen([str(YOKE), "run", "--nproc", "2", "yes"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env=clean_environment(), cwd=ROOT)
    try:
        assert process.stdout.read(100)
        time.sleep(0.5)  # nobody reads: pipes fill up
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: process.poll() is not None, 30)
    finally:
        process.kill()
        process.stdout.close()
        process.wait(30)


def test_nohup_is_honoured(job, tmp_path):
    command = f"trap '' HUP; exec {YOKE} run --nproc 1 /bin/sh -c 'echo ready; sleep 1; echo done'"
    with open(tmp_path / "out", "w") as out:
        process = subprocess.Popen(["bash", "-c", command], stdout=out, env=clean_environment(), cwd=ROOT)
    wait_until(lambda: "ready" in (tmp_path / "out").read_text(), 30)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0 and "done" in (tmp_path / "out").read_text()
