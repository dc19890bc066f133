"""When an attempt has finished its work: exit code 0 is evidence, not the verdict."""

import pytest

from supervisor.policy.script.figures import Bar
from supervisor.policy.script.finish import (
    Course,
    has_more_epochs,
    in_save,
    is_at_exit,
    is_background,
    says_done,
    says_early_stop,
    short_ends,
)
from supervisor.policy.worker.diagnosis import Diagnosis

DONE = Diagnosis("done", counted=False, why="finished, exit code 0")
CRASH = Diagnosis("crash", counted=True, why="exit code 1")
HANG = Diagnosis("stalled", counted=True, why="ended after a stall (hang), killed by SIGKILL")
KILLED = Diagnosis("killed", counted=True, why="killed by SIGKILL, which extralife did not send")
STOPPED = Diagnosis("stopped", counted=False, why="stopped on request (operator), exit code 0")


@pytest.mark.parametrize(
    ("verdict", "course", "cause", "why"),
    [
        (DONE, Course(), "done", "finished, exit code 0"),
        (DONE, Course(34), "done", "finished, exit code 0 at step 34; its target is not known (target_steps)"),
        (DONE, Course(34, 100_000, decided=True), "done", "finished, exit code 0 at step 34 of 100,000, by its own decision"),
        (DONE, Course(34, decided=True), "done", "finished, exit code 0 at step 34, by its own decision"),
        (DONE, Course(None, 100_000), "done", "finished, exit code 0"),
        (DONE, Course(34, 100_000), "left", "asked to leave from outside (or an early stop): exit code 0 at step 34 of 100,000"),
        (DONE, Course(34, 100_000, signal="SIGTERM"), "left", "asked to leave from outside (SIGTERM): exit code 0 at step 34 of 100,000"),
        (DONE, Course(89_999, 100_000), "left", "asked to leave from outside (or an early stop): exit code 0 at step 89,999 of 100,000"),
        (DONE, Course(4, 5, apart=1), "done", "finished, exit code 0"),
        (DONE, Course(4, 5, apart=1, signal="SIGTERM"), "left", "asked to leave from outside (SIGTERM): exit code 0 at step 4 of 5"),
        (DONE, Course(60, 100, apart=39), "left", "asked to leave from outside (or an early stop): exit code 0 at step 60 of 100"),
        (DONE, Course(90_000, 100_000), "done", "finished, exit code 0"),
        (DONE, Course(90_000, 100_000, signal="SIGTERM"), "done", "finished, exit code 0"),
        (DONE, Course(60, 100, short_ends=(60,)), "left", "asked to leave from outside (or an early stop): exit code 0 at step 60 of 100"),
        (DONE, Course(60, 100, short_ends=(60, 60)), "done", "finished, exit code 0 at step 60 of 100: it has ended there 3 times by itself"),
        (CRASH, Course(100, 100, exception="EOFError: EOF when reading a line"), "done", "finished at step 100 of 100, and asked for input: exit code 1"),
        (CRASH, Course(99, 100, exception="EOFError: EOF when reading a line"), "crash", "exit code 1"),
        (DONE, Course(60, 100, laps=1), "left", "asked to leave from outside (or an early stop): exit code 0 at step 60 of 100"),
        (DONE, Course(60, 100, laps=2, bar=Bar(100, (), 60, 9.0)), "left", "asked to leave from outside (or an early stop): exit code 0 at step 60 of 100"),
        (DONE, Course(60, 100, laps=2), "done", "finished, exit code 0 at step 60 of 100, a step that begins anew in each epoch, so target_steps does not fit it"),
        (DONE, Course(61, 100, short_ends=(60, 60)), "left", "asked to leave from outside (or an early stop): exit code 0 at step 61 of 100"),
        (DONE, Course(29, 100, short_ends=(29, 29), exception="RuntimeError: CUDA error"), "crash",
         "exit code 0 at step 29 of 100, but its output ends with an exception (behind a pipe, set -o pipefail): RuntimeError: CUDA error"),
        (DONE, Course(29, 100, exception="MemoryError"), "out_of_memory",
         "exit code 0 at step 29 of 100, but its output ends with an exception (behind a pipe, set -o pipefail): MemoryError"),
        (DONE, Course(29, 100, exception="E", decided=True), "done", "finished, exit code 0 at step 29 of 100, by its own decision"),
        (DONE, Course(None, 100, exception="E"), "crash",
         "exit code 0, but its output ends with an exception (behind a pipe, set -o pipefail): E"),
        (DONE, Course(95, 100, exception="E"), "done", "finished, exit code 0"),
        (DONE, Course(exception="ValueError: x"), "done",
         "finished, exit code 0, but its output ends with an exception (behind a pipe, set -o pipefail): ValueError: x"),
        (DONE, Course(5000, untrained="ck/5000"), "done",
         "finished, exit code 0; nothing was trained: it began with ck/5000, from before its first start (is that of this training?)"),
        (DONE, Course(signal="SIGTERM"), "left", "asked to leave from outside (SIGTERM): exit code 0"),
        (DONE, Course(ended=("aws s3 sync(7)",), grace_s=30.0), "done",
         "exit code 0; ended after 30s: aws s3 sync(7); if that was the training, run it in the foreground: without &, nohup, setsid or tmux -d, and with exec in a shell script"),
        (DONE, Course(100, 100, ended=("a(7)", "b(8)"), grace_s=0.5), "done", "exit code 0 at step 100 of 100; ended after 500ms: a(7), b(8)"),
        (HANG, Course(99, 100), "done", "finished at step 99 of 100, but hung at its exit: ended after a stall (hang), killed by SIGKILL"),
        (HANG, Course(98, 100), "stalled", HANG.why),
        (HANG, Course(50, 50, bar=Bar(50, (), 50, 9.0)), "done", f"finished at step 50 of 50, but hung at its exit: {HANG.why}"),
        (HANG, Course(50, 50, bar=Bar(50, (), 50, 9.0, is_part=True)), "stalled", HANG.why),
        (HANG, Course(98, 100, resumed_step=100), "stalled", HANG.why),
        (CRASH, Course(100, 100, resumed_step=100), "done", "finished at step 100 of 100, where it had resumed: exit code 1"),
        (CRASH, Course(100, 100, resumed_step=99, saved=False), "crash", "exit code 1"),
        (CRASH, Course(100, 100, saved=True, in_save=True), "done", "finished at step 100 of 100, and died at its exit: exit code 1"),
        (CRASH, Course(59, 60, apart=1, saved=True), "crash", "exit code 1"),
        (CRASH, Course(599, 600, apart=1, saved=True), "done", "finished at step 599 of 600, and died at its exit: exit code 1"),
        (CRASH, Course(100, 100), "done", "finished at step 100 of 100, and died at its exit: exit code 1"),
        (CRASH, Course(100, 100, in_save=True), "crash", "exit code 1"),
        (CRASH, Course(100, 100, bar=Bar(100, (), 100, 9.0, is_part=True)), "crash", "exit code 1"),
        (KILLED, Course(100, 100), "killed", KILLED.why),
        (KILLED, Course(100, 100, saved=True), "done", f"finished at step 100 of 100, and died at its exit: {KILLED.why}"),
        (KILLED, Course(100, 100, saved=True, bar=Bar(100, (), 100, 9.0)), "killed", KILLED.why),
        (CRASH, Course(60, as_before=True, says_done=True), "done", "finished, as before, without a step: exit code 1"),
        (CRASH, Course(60, as_before=True), "crash", "exit code 1"),
        (CRASH, Course(60, 100, as_before=True, says_done=True), "crash", "exit code 1"),
        (CRASH, Course(60, says_done=True), "crash", "exit code 1"),
        (HANG, Course(60, at_exit=True), "done", f"finished, but hung at its exit: {HANG.why}"),
        (HANG, Course(60, at_exit=True, exception="ValueError: x"), "stalled", HANG.why),
        (DONE, Course(95, 100, bar=Bar(100, (), 95, 9.0, is_part=True)), "left", "asked to leave from outside (or an early stop): exit code 0 at step 95 of 100"),
        (DONE, Course(100, 100, bar=Bar(100, (), 100, 9.0, is_part=True)), "done", "finished, exit code 0"),
        (STOPPED, Course(34, 100, resumed_step=100), "stopped", STOPPED.why),
    ],
)  # fmt: skip
def test_the_verdict_on_an_end(verdict, course, cause, why):
    found = course.judge(verdict)
    assert (found.cause, found.why) == (cause, why)
    assert found.counted is (cause not in {"done", "stopped"})
    doubts = (
        "that was the training" in why, why.startswith("finished, exit code 0, but"), course.bar and "hung" in why,
        "begins anew" in why, "nothing was trained" in why, "died at its exit" in why and not course.saved, "as before" in why, course.at_exit and cause == "done",
    )  # fmt: skip
    assert found.doubtful is any(doubts)


@pytest.mark.parametrize(
    ("lines", "more"),
    [
        ((), False), (("Epoch 9/10", "Epoch 10/10: 100%|##| 500/500"), False), (("epoch [1/10] done", "validates"), True),
        (("Epoch: 2 of 3",), True), (("Epoch 0: 100%|##| 500/500",), False),
    ],
)  # fmt: skip
def test_an_output_that_counts_epochs_shows_whether_more_follow(lines, more):
    assert has_more_epochs(lines) is more


def test_an_end_farther_than_the_earlier_ones_begins_a_new_row():
    assert short_ends((), 5) == (5,)
    assert short_ends((5,), 4) == (5, 4)
    assert short_ends((5, 4), 5) == (5, 4, 5)
    assert short_ends((5, 4), 6) == (6,)


@pytest.mark.parametrize(
    ("lived_s", "worked", "works", "detached", "background"),
    [
        (0.02, False, False, False, True),  # python train.py & exit
        (0.99, False, False, False, True),
        (1.0, False, False, False, False),  # it may have worked
        (1.0, False, False, True, True),  # nohup python train.py &, after a slow start of the environment
        (29.9, False, False, True, True),
        (30.0, False, False, True, False),
        (0.02, True, False, True, False),
        (3600.0, True, True, False, True),
        (3600.0, False, True, False, True),
        (3600.0, True, False, True, False),  # a training, then nohup aws s3 sync &
    ],
)
def test_what_outlives_the_grace_is_the_work_or_the_rest_of_it(lived_s, worked, works, detached, background):
    assert is_background(lived_s=lived_s, worked=worked, works=works, detached=detached) is background


SHUTDOWN = 'Thread 7 (idle): "MainThread"\n    _shutdown (threading.py:1590)\nThread 8 (idle): "Thread-1"\n    bg (t.py:4)'
TRAINS = 'Thread 7 (active): "MainThread"\n    train (t.py:4)\n    <module> (t.py:9)'


@pytest.mark.parametrize(
    ("evidence", "at_exit"),
    [
        ({}, False),
        ({"stacks_by_py_spy": f"python3(7):\n{SHUTDOWN}"}, True),
        ({"stacks_by_py_spy": f"python3(7):\n{TRAINS}"}, False),
        ({"stacks_by_py_spy": f"python3(7):\n{SHUTDOWN}\n    <module> (a_worker.py:1)"}, True),  # that of another thread
        ({"stacks": 'Current thread 0x7f (most recent call first):\n  File "/lib/threading.py", line 1590 in _shutdown'}, True),
        ({"stacks": 'Thread 0x7f (most recent call first):\n  File "t.py", line 9 in close_shutdown\n  File "t.py", line 9 in <module>'}, False),
    ],
)  # fmt: skip
def test_a_main_thread_in_the_interpreters_exit_has_left_the_script(evidence, at_exit):
    assert is_at_exit(evidence) is at_exit


@pytest.mark.parametrize("cause", ["diverged", "sick"])
def test_a_training_that_went_wrong_at_its_target_has_not_finished(cause):
    course = Course(1000, 1000, resumed_step=1000)
    assert course.judge(Diagnosis(cause, counted=True, why="x")).cause == cause
    assert course.judge(Diagnosis("crash", counted=True, why="x")).cause == "done"


@pytest.mark.parametrize(
    ("by_contract", "sudden", "steps", "finished"),
    [
        (False, False, None, False),  # an orderly shutdown may have asked it to leave
        (True, False, None, True),
        (False, True, None, True),
        (False, False, 1000, True),
        (False, False, 100, False),
        (True, True, 100, False),  # it was asked to leave
    ],
)
def test_what_had_finished_before_a_reboot(by_contract, sudden, steps, finished):
    course = Course(steps, None if steps is None else 1000)
    assert course.had_finished(by_contract=by_contract, sudden=sudden) is finished


def test_what_the_last_lines_of_an_output_say_about_its_end():
    assert says_done(("step 60", "Training finished, model saved"))
    assert says_done(("{'train_runtime': 5.0}",))
    assert not says_done(("unfinished business", "5002 Done | tee run.log"))
    assert says_early_stop(("Epoch 00012: early stopping",))
    assert not says_early_stop(("EarlyStopping counter: 3 out of 10", "early_stopping=True", "early stopping patience 3"))
    assert in_save(('  File "/w/t.py", line 7, in save_checkpoint',))
    assert not in_save(('  File "/w/t.py", line 7, in upload', "the save is done"))
