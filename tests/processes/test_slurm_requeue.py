"""`yoke run --requeue` with Slurm's variables and a stand-in for scontrol."""
import json
import signal
import sys

import pytest
from launching import Job, wait_until
from ports import free_port
from test_coordinator_returns import machines  # noqa: F401

# Says that it runs, and ends as a run of `yoke train` does: on a signal with 128 + its number, when its state is saved.
STOPS = "import signal, sys; [signal.signal(n, lambda n, _: sys.exit(128 + n)) for n in (2, 10, 15)]; print('runs', flush=True); signal.pause()"
FINISHES = "import signal, sys; signal.signal(10, lambda *_: sys.exit(0)); print('runs', flush=True); signal.pause()"
FAILS = "import signal, sys; signal.signal(10, lambda *_: sys.exit(7)); print('runs', flush=True); signal.pause()"
NOTES = 'echo "$@" >> "$SCONTROL_LOG"'


@pytest.fixture
def start(tmp_path):
    """start(program, …): one rank under `yoke run --requeue` in Slurm job 17."""
    folder = tmp_path / "bin"
    folder.mkdir()
    jobs = []

    def start(program, *flags, scontrol=NOTES, slurm=True, **more):
        if scontrol:
            (folder / "scontrol").write_text(f"#!/bin/sh\n{scontrol}\n")
            (folder / "scontrol").chmod(0o755)
        variables = {"SLURM_JOB_ID": 17, "SLURM_JOB_NUM_NODES": 1, "SLURM_PROCID": 0} if slurm else {}
        jobs.append(Job(tmp_path, "--requeue", *flags, sys.executable, "-c", program,
                        env={"PATH": f"{folder}:/usr/bin:/bin", "SCONTROL_LOG": tmp_path / "asked", **variables, **more}))
        return jobs[-1]

    yield start
    for job in jobs:
        job.end()


def stop(job, number):
    wait_until(lambda: "runs" in job.out + job.err or job.process.poll() is not None, 60, lambda: job.err)
    job.signal(number)
    return job.wait()


def asked(folder):
    return (folder / "asked").read_text() if (folder / "asked").exists() else ""


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_job_that_stops_when_its_time_is_up_is_requeued_once(start, tmp_path, number):
    job = start(STOPS, "--json")
    assert stop(job, number) == 128 + number, job.err
    assert asked(tmp_path) == "requeue 17\n", job.err
    assert "Slurm job 17 is requeued" in job.err
    assert json.loads(job.out[job.out.index("{"):])["requeued"] is True


@pytest.mark.parametrize("program, number, code", [(FINISHES, signal.SIGUSR1, 0), (FAILS, signal.SIGUSR1, 7), (STOPS, signal.SIGINT, 130)],
                         ids=["it ends well", "it fails", "the user interrupts it"])
def test_a_job_that_ends_otherwise_is_not_requeued(start, tmp_path, program, number, code):
    job = start(program)
    assert stop(job, number) == code, job.err
    assert asked(tmp_path) == ""


def test_only_the_first_launcher_requeues_the_job(start, tmp_path):
    job = start(STOPS, SLURM_PROCID=1)
    assert stop(job, signal.SIGUSR1) == 138, job.err
    assert asked(tmp_path) == ""


def test_a_requeue_that_fails_is_an_error_with_the_words_of_scontrol(start):
    job = start(STOPS, scontrol="echo 'Job is not requeueable' >&2; exit 1")
    assert stop(job, signal.SIGUSR1) == 2
    assert "error: --requeue: `scontrol requeue 17` exited with code 1: Job is not requeueable." in job.err


@pytest.mark.parametrize("of_slurm, requeued", [(1, True), (2, False)], ids=["its Slurm job is this machine", "its Slurm job has another one"])
def test_a_machine_that_leaves_an_elastic_job_is_requeued_without_the_others(machines, tmp_path, of_slurm, requeued):  # noqa: F811
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{NOTES}\n")
    (tmp_path / "scontrol").chmod(0o755)
    slurm = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SCONTROL_LOG": tmp_path / "asked", "SLURM_JOB_ID": 17, "SLURM_JOB_NUM_NODES": of_slurm, "SLURM_PROCID": 0}
    endpoint = ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    machines.start(0, *endpoint, steps=10**7)
    machines.start(1, *endpoint, "--requeue", steps=10**7, env=slurm)
    machines.wait_for_step(20)
    leaving = machines.jobs.pop(1)
    leaving.signal(signal.SIGTERM)
    assert leaving.wait(60) == 0, leaving.err
    assert asked(tmp_path) == ("requeue 17\n" if requeued else ""), leaving.err
    assert requeued or "Slurm job 17 is not requeued: its other machines continue" in leaving.err
    machines.wait_for_step(machines.records()[-1]["step"] + 20)


@pytest.mark.parametrize("where, message", [({"slurm": False}, "--requeue: this is not a Slurm job"),
                                            ({"scontrol": ""}, "--requeue: there is no scontrol in PATH")], ids=["outside of Slurm", "without scontrol"])
def test_it_is_refused_before_anything_starts(start, where, message):
    job = start(STOPS, **where)
    assert job.wait() == 2
    assert message in job.err and "runs" not in job.out
