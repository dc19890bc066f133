"""What happens when something fails, as rows: the fault, the answer, the rule, the test. docs/faults.md is made from them.

A row with an id is a fault of the catalogue. Tests carry the id (`@pytest.mark.fault("killed")`): at least one on real
processes and one story in the simulator. `tests/test_catalogue.py` compares rows, page, README and tests.

    python tests/catalogue.py > docs/faults.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One fault. `rule` is the file that states the rule first; `test` is FILE::FUNCTION below tests/."""

    when: str
    then: str
    rule: str
    test: str
    fault: str | None = None


HEALING = "e2e/test_healing.py::"
LOST_GPU = "e2e/test_lost_gpu_live.py::"
WORKER_FAULTS = "e2e/test_worker_faults.py::"
OFFSITE = "adapters/test_offsite.py::"
WHEN_DONE = "e2e/test_when_done_live.py::"
HOST_FAULTS = "e2e/test_host_faults.py::"
HOST_WORLD = "e2e/test_host_world.py::"
CHECKPOINT_FAULTS = "e2e/test_checkpoint_faults.py::"
DAMAGED = CHECKPOINT_FAULTS + "test_a_damaged_newest_checkpoint_is_set_aside_with_its_defect_and_the_one_before_taken"
EXAMINED = HEALING + "test_a_worker_that_does_not_get_on_is_examined_ended_and_replaced"

SECTIONS: dict[str, tuple[Row, ...]] = {
    "A worker": (
        Row(
            "a worker is killed",
            "restarted at once from its newest checkpoint; repeated deaths wait longer, up to 5 min",
            "supervisor/policy/worker/restart.py",
            HEALING + "test_a_worker_killed_with_9_is_replaced_at_once",
            "killed",
        ),
        Row(
            "a worker is suspended (SIGSTOP)",
            "continued with SIGCONT after 5 s, not killed",
            "supervisor/policy/worker/stall.py",
            HEALING + "test_a_stopped_worker_is_continued_and_not_killed",
            "stopped",
        ),
        Row(
            "a worker's loop holds the GIL",
            "its stacks and other evidence are saved, then it is ended and replaced",
            "supervisor/policy/worker/stall.py",
            EXAMINED,
            "gil",
        ),
        Row(
            "an envpool call never returns",
            "the same, although the worker's other threads still live",
            "supervisor/policy/worker/stall.py",
            EXAMINED,
            "envpool-hang",
        ),
        Row(
            "a worker sends beats without progress",
            "the same: only steps prove progress, beats do not",
            "supervisor/policy/worker/stall.py",
            WORKER_FAULTS + "test_a_loop_that_spins_without_a_step_is_a_hang_although_its_side_thread_beats",
            "no-progress",
        ),
        Row(
            "a worker segfaults",
            "reported as a crash with its signal, and restarted",
            "supervisor/policy/worker/diagnosis.py",
            HEALING + "test_a_segfault_inside_envpool_is_a_crash_and_is_healed",
            "segfault",
        ),
        Row(
            "a worker dies at once every time",
            "8 deaths in an hour lead to slow retry: one trial start after 30 min, the next after 60 min, and so on; "
            "`status` shows the time",
            "supervisor/policy/worker/restart.py",
            HEALING + "test_death_at_once_every_time_ends_in_slow_retry_with_a_time",
            "dies-at-once",
        ),
        Row(
            "a worker dies every two seconds",
            "the same: a death counts however long the worker lived",
            "supervisor/policy/worker/restart.py",
            HOST_FAULTS + "test_a_worker_that_dies_every_two_seconds_ends_in_slow_retry_with_a_time",
            "dies-soon",
        ),
        Row(
            "a program's command is gone, because its disk is mounted late after a reboot",
            "tried again after 1, 2, 4 ... s up to 5 min, with an alert after half a minute; FATAL only if its present "
            "configuration has never run",
            "supervisor/deciding/attempts.py",
            "core/test_decide_attempts.py::test_a_command_that_is_gone_although_it_has_run_is_tried_again",
        ),
        Row(
            "a worker leaves children behind, in a session of their own",
            "they are ended before the next start and named in history, also when the shim itself is killed",
            "supervisor/shim.py",
            HOST_FAULTS + "test_fifteen_crashes_leave_none_of_their_hidden_children",
            "orphans",
        ),
        Row(
            "a tree is killed that shares memory in /dev/shm (NCCL, `multiprocessing`)",
            "the files that no other process has mapped are removed and named in history",
            "supervisor/shim.py",
            "adapters/test_processes.py::test_shared_memory_that_only_a_killed_tree_had_mapped_is_removed",
        ),
        Row(
            "a worker ignores SIGTERM",
            "killed with all its processes after its grace period",
            "supervisor/policy/worker/ending.py",
            HEALING + "test_a_worker_that_ignores_sigterm_is_killed_after_its_grace",
            "ignores-sigterm",
        ),
        Row(
            "somebody else sends SIGTERM, and the script saves and exits with 0 far below its target",
            "started again, reported as asked to leave from outside; at the third end without getting farther it is DONE",
            "supervisor/policy/worker/finish.py",
            "e2e/test_clean_ends.py::test_somebody_elses_sigterm_answered_with_0_starts_the_program_again",
        ),
        Row(
            "a script hangs at its exit, at its target",
            "ended as a stall, and DONE; the hang is in the reason",
            "supervisor/policy/worker/finish.py",
            "core/test_decide_ends.py::test_one_that_hangs_at_its_target_is_done_after_its_stall",
        ),
        Row(
            "a command puts its trainer into the background and leaves",
            "the trainer runs on and stops with the program; `status`, history and an alert name the remedy",
            "supervisor/policy/worker/finish.py",
            "e2e/test_clean_ends.py::test_a_trainer_in_the_background_runs_on_under_a_reported_remedy",
        ),
        Row(
            "a script ends with 0 while its upload runs in the background",
            "the upload has `stop_grace_s` to finish; then it is ended and named",
            "supervisor/policy/worker/finish.py",
            "e2e/test_clean_ends.py::test_an_upload_left_behind_has_the_grace_and_is_named_if_it_is_ended",
        ),
        Row(
            "a trainer behind a shell, a pipe or a launcher is stopped",
            "the trainer itself gets SIGTERM and has the whole grace period to save; `tee` and the shell stay until it has left",
            "supervisor/shim.py",
            "e2e/test_wrapped.py::test_wrapped_trainers_save_before_they_leave",
        ),
        Row(
            "a script prints nothing for hours while it computes",
            "left alone and shown as quiet: CPU time, I/O, files or the GPU of its whole tree speak for it",
            "supervisor/policy/worker/witness.py",
            "e2e/test_any_script.py::test_a_silent_script_that_computes_is_quiet_and_one_that_does_nothing_is_ended",
            "silent-works",
        ),
        Row(
            "a script that reports nothing hangs",
            "ended after 10 min without any work of its tree, and restarted; each kill that healed nothing doubles the limit",
            "supervisor/policy/worker/stall.py",
            "e2e/test_any_script.py::test_a_silent_script_that_computes_is_quiet_and_one_that_does_nothing_is_ended",
            "silent-hangs",
        ),
        Row(
            "a child process of a worker is suspended (SIGSTOP)",
            "named in `status` and history, and continued with SIGCONT after 5 s",
            "supervisor/policy/worker/stall.py",
            "e2e/test_any_script.py::test_a_suspended_child_of_a_tree_runs_again_in_seconds",
            "child-stopped",
        ),
        Row(
            "a script is restarted and does not say from which step it goes on",
            "history and an alert say that the loss is unknown; what it had trained before is booked as UNPROVEN",
            "supervisor/policy/upkeep/accounting.py",
            "core/test_accounts.py::test_what_was_trained_before_a_restart_of_unknown_resume_is_unproven",
        ),
        Row(
            "a script shows step 0 after it has loaded its checkpoint",
            "a bar that jumps has resumed; a count that begins anew is added to the checkpoint's step, with `{resume}` or `steps_begin_anew = true`; else the loss is unknown",
            "supervisor/policy/worker/resume_step.py",
            "e2e/test_own_checkpoints_live.py::test_scripts_that_show_zero_after_a_resume_have_lost_only_what_they_lost",
        ),
        Row(
            "TensorBoard or another service dies, or is idle for days",
            "restarted as its `restart` says; it takes no slot and is never judged by progress",
            "supervisor/policy/worker/restart.py",
            "core/test_decide_services.py::test_it_comes_back_although_every_slot_is_taken",
        ),
        Row(
            "a script prints import warnings and dies, again and again",
            "it stays STARTING: it is RUNNING only once it lives longer than before",
            "supervisor/policy/worker/readiness.py",
            "core/test_decide_silence.py::test_an_import_warning_does_not_make_a_crash_looper_running",
        ),
        Row(
            "a worker hangs in the kernel (state D)",
            "reported once, with its place in the kernel; it keeps its slot and is not killed; a stop request is answered with "
            "the reason for the delay",
            "supervisor/policy/worker/ending.py",
            HOST_FAULTS + "test_a_worker_in_state_d_is_reported_once_keeps_its_slot_and_goes_on",
            "state-d",
        ),
        Row(
            "a worker comes back after its successor started",
            "fenced off: it can save nothing, and leaves",
            "workers/checkpoint.py",
            HOST_FAULTS + "test_a_worker_that_comes_back_after_its_successor_started_is_fenced",
            "late-worker",
        ),
        Row(
            "a script's newest checkpoint is torn, and the script dies of it",
            "after three such deaths that checkpoint is set aside, and the script goes on from the one before; the lost steps are "
            "booked",
            "supervisor/policy/worker/suspects.py",
            "e2e/test_own_checkpoints_live.py::test_it_is_killed_while_it_saves_and_goes_on_from_the_whole_one",
            "torn-own-checkpoint",
        ),
        Row(
            "a script is killed while it writes over its only checkpoint",
            "the copy of its last whole state is put back, and the torn one is set aside; without a copy a critical alert comes before it begins from nothing",
            "supervisor/adapters/copies/kept_copy.py",
            "e2e/test_own_checkpoints_live.py::test_an_only_file_that_is_cut_while_it_is_written_over_is_put_back",
        ),
        Row(
            "a script's newest checkpoint looks whole, and every start from it dies",
            "the same; if it dies of the three newest ones, none of them is the cause: all are put back, with a critical alert",
            "supervisor/policy/worker/suspects.py",
            "e2e/test_own_checkpoints_live.py::test_one_without_a_shard_is_set_aside_and_the_one_before_it_trains",
        ),
        Row(
            "a worker becomes very slow",
            "reported with stacks and the host's load; it saves and restarts only if it stays below half of its usual rate for "
            "30 min while the other workers are well",
            "supervisor/policy/worker/slowness.py",
            WORKER_FAULTS + "test_a_crawl_is_told_and_looked_into_and_started_again_when_it_lasts_alone",
            "slow",
        ),
        Row(
            "a script spins and makes no step, as a rank whose peer has died",
            "after five of its usual gaps steps/s and the time to the target are unknown; an alert; it is asked to save and "
            "restarted after `slow_restart_s`, and again if that brought it further",
            "supervisor/policy/worker/slowness.py",
            "e2e/test_figures_live.py::test_steps_that_stand_still_are_unknown_everywhere_and_the_worker_is_restarted",
        ),
        Row(
            "a worker's beat file is removed or overwritten",
            "the worker makes it again within a second; until then its log and CPU time stand in: unknown is not stalled",
            "supervisor/adapters/process/probes.py",
            "e2e/test_runtime_lost.py::test_an_overwritten_beat_is_told_as_such_and_is_no_stall",
            "beat-damaged",
        ),
    ),
    "Learning": (
        Row(
            "the loss becomes NaN",
            "no bad update is applied or saved; back to an older checkpoint with another random seed; FATAL after three "
            "rollbacks to the same checkpoint",
            "supervisor/policy/worker/divergence.py",
            WORKER_FAULTS + "test_the_real_trainer_is_rolled_back_from_nan_and_gets_a_batch_that_fits",
            "nan",
        ),
        Row(
            "Q explodes",
            "after a minute beyond ten times the highest possible value back to a checkpoint before it, with another random seed; FATAL after three times; `on_sick` sets another answer",
            "supervisor/policy/worker/health.py",
            "e2e/test_health.py::test_a_worker_whose_q_explodes_is_rolled_back_to_before_it_began",
            "exploding-q",
        ),
        Row(
            "a policy collapses",
            "reported with its figures in `status` and `explain`; `on_sick` may ask for a rollback, another random seed, or FATAL",
            "supervisor/policy/worker/health.py",
            "e2e/test_health.py::test_a_policy_that_collapses_and_a_return_that_falls_are_told_and_the_fall_is_rolled_back",
            "collapsed-entropy",
        ),
        Row(
            "the return falls far below its best",
            "the same, after 1,000 such games",
            "supervisor/policy/worker/health.py",
            "e2e/test_health.py::test_a_policy_that_collapses_and_a_return_that_falls_are_told_and_the_fall_is_rolled_back",
            "falling-return",
        ),
    ),
    "Load, memory and GPUs": (
        Row(
            "a level is too heavy for the box, which reboots after 17 minutes at it",
            "back to the level that holds; the heavy level is tried again after two hours, then four, then eight; "
            "`level why` gives the reasons",
            "supervisor/policy/level/load.py",
            "e2e/test_night.py::test_the_night_climbs_falls_and_tries_again",
        ),
        Row(
            "a worker runs out of memory (MemoryError)",
            "the next attempt gets the next smaller batch that divides, for good at this level; CUDA's errors likewise",
            "supervisor/policy/worker/out_of_memory.py",
            WORKER_FAULTS + "test_a_memory_error_is_answered_with_smaller_batches_until_one_fits",
            "memory-error",
        ),
        Row(
            "the kernel's OOM killer takes a worker",
            "distinguished from an ordinary kill by the kernel's log or by the counter of the worker's cgroup; answered with a "
            "smaller batch as well",
            "supervisor/policy/worker/out_of_memory.py",
            WORKER_FAULTS + "test_a_worker_that_the_kernel_takes_for_its_memory_is_told_from_one_that_is_killed",
            "oom-kill",
        ),
        Row(
            "a worker takes more memory than its level allows",
            "the kernel ends the whole worker, and the limit is reported; other workers are not touched",
            "supervisor/policy/worker/confinement.py",
            "lab/test_lab_cgroups.py::test_what_wants_more_memory_is_ended_as_a_whole_and_told_as_its_own_doing",
        ),
        Row(
            "other processes fill the GPU's memory",
            "the program waits (GATED) until its GPU has the memory that it is configured to need or was seen to need; after a "
            "timeout it starts with its fallback batch",
            "supervisor/policy/box/gate.py",
            "e2e/test_gpu_live.py::test_a_program_waits_for_memory_and_starts_when_it_is_free",
            "gpu-memory",
        ),
        Row(
            "the GPU's driver hangs",
            "the GPUs count as unknown, which is reported once; daemon and training go on, no level is forbidden, and what needs "
            "a GPU starts when the driver answers",
            "supervisor/adapters/host/gpu_nvml.py",
            "e2e/test_gpu_live.py::test_a_driver_that_hangs_is_unknown_and_neither_workers_nor_daemon_care",
            "gpu-hangs",
        ),
        Row(
            "the box comes back without its GPU, with fewer, or with a driver that answers with an error",
            "what used the missing GPU or asks for it waits (GATED, without a slot) and never trains on the CPU; `status`, one "
            "critical alert and `report` say why, its hours are HOST_DOWN, and it goes on by itself when the GPU is back; with "
            '`when_no_gpu = "cpu"` it trains on the CPU',
            "supervisor/policy/box/lost_gpu.py",
            LOST_GPU + "test_a_box_that_comes_back_without_its_gpu_trains_nothing_on_the_cpu",
        ),
        Row(
            "a GPU vanishes while its worker starts",
            "the worker refuses the CPU and waits like that; it is tried again every two minutes",
            "workers/precision.py",
            LOST_GPU + "test_a_worker_that_finds_no_gpu_where_the_box_shows_one_refuses_the_cpu",
        ),
        Row(
            "the box comes back with another model of GPU",
            "reported once, with an alert; the record of levels, vetoes and memory needs begins anew",
            "supervisor/deciding/hardware.py",
            LOST_GPU + "test_of_fewer_gpus_the_missing_one_is_waited_for_and_another_model_is_told",
        ),
        Row(
            "a GPU falls off the bus, runs hot, or reports an Xid",
            "reported once; no higher level is tried until 30 min after the last such reading",
            "supervisor/policy/box/prechecks.py",
            "e2e/test_gpu_live.py::test_a_gpu_that_falls_off_the_bus_and_an_xid_are_told",
            "gpu-lost",
        ),
    ),
    "Checkpoints and backups": (
        Row(
            "the disk fills up during a checkpoint",
            "training goes on, and earlier checkpoints stay; reported once with the free bytes, and shown in `status` until a "
            "save succeeds",
            "workers/checkpoint.py",
            CHECKPOINT_FAULTS + "test_while_the_disk_is_full_training_goes_on_and_what_is_saved_stays",
            "disk-full-checkpoint",
        ),
        Row(
            "the newest checkpoint has a flipped bit",
            "renamed to `.bad` and reported with its defect; the checkpoint before it is used",
            "workers/checkpoint.py",
            DAMAGED,
            "checkpoint-flipped",
        ),
        Row("the newest checkpoint is cut short", "the same", "workers/checkpoint.py", DAMAGED, "checkpoint-truncated"),
        Row("a file of the newest checkpoint is empty", "the same", "workers/checkpoint.py", DAMAGED, "checkpoint-empty"),
        Row(
            "a file of the newest checkpoint is missing",
            "the same; if no checkpoint is complete, training begins at step 0 and an alert reports it",
            "workers/checkpoint.py",
            DAMAGED,
            "checkpoint-missing",
        ),
        Row(
            "three deaths follow a resume from the same checkpoint",
            "that checkpoint is set aside, and the one before it is tried",
            "supervisor/policy/worker/restart.py",
            WORKER_FAULTS + "test_a_checkpoint_that_kills_whoever_loads_it_is_set_aside_after_three_deaths",
            "checkpoint-poison",
        ),
        Row(
            "a run directory, or all its checkpoints, are removed while its worker runs",
            "extralife restarts itself, which makes the directory again with its fence; the worker saves into it within "
            "seconds and loses no step; an [alert](alerts.md) goes out",
            "supervisor/policy/box/foundations.py",
            "e2e/test_run_dir_lost.py::test_what_was_removed_is_made_again_and_saved_into_at_once",
        ),
        Row(
            "a program trains without saving",
            "an alert and a note in `status` after three checkpoint intervals, at the earliest after ten minutes",
            "supervisor/policy/worker/unsaved.py",
            "core/test_decide_healing.py::test_a_program_that_trains_on_without_saving_is_reported_once_until_it_saves",
        ),
        Row(
            "a resume finds no checkpoint although there was one",
            "training begins at step 0, with a critical alert that names the lost step",
            "supervisor/deciding/attempts.py",
            "e2e/test_run_dir_lost.py::test_a_resume_that_finds_nothing_where_there_was_a_checkpoint_is_an_alert",
        ),
        Row(
            "you want to take back a night of training",
            "`supervisorctl rollback` verifies a [backup](backups.md), stops the games, saves a copy of their current state and "
            "resumes from the backup; a damaged backup is refused and nothing changes",
            "supervisor/policy/upkeep/backups.py",
            "e2e/test_backups_live.py::test_train_back_up_train_on_go_back",
        ),
        Row(
            "the daemon is killed in the middle of a rollback",
            "the next daemon finishes it; at any moment a worker finds either the complete old state or the complete new one",
            "supervisor/adapters/copies/store.py",
            "adapters/test_backups.py::test_killed_at_any_moment_it_is_the_old_or_the_new_and_asked_again_the_new",
        ),
    ),
    "Copies off the box": (
        Row(
            "a rented box vanishes",
            "a new box goes on from a copy that is minutes old; every program resumes, and journal, accounts and "
            "results continue",
            "supervisor/policy/upkeep/offsite.py",
            "e2e/test_offsite_live.py::test_a_vanished_box_is_regained_and_comes_back_fenced",
        ),
        Row(
            "a rented box vanishes on which a script saved checkpoints by itself",
            "on the new box its first start waits until the copied checkpoint is put back where `checkpoint_glob` looks",
            "supervisor/adapters/copies/put_back.py",
            "e2e/test_offsite_live.py::test_a_script_goes_on_from_its_copied_checkpoint_on_another_box",
        ),
        Row(
            "a box comes back after another one has taken over its trainings",
            "it stops its programs within one copy interval, with an alert; `supervisorctl offsite take-over` brings them back",
            "supervisor/policy/upkeep/offsite.py",
            "adapters/test_offsite.py::test_a_box_that_comes_back_finds_that_another_has_taken_over",
        ),
        Row(
            "the disk of a box is cloned, and both boxes run",
            "the one that has copied last goes on; the other one stops its programs, with an alert",
            "supervisor/policy/upkeep/offsite.py",
            OFFSITE + "test_of_a_cloned_disk_only_one_goes_on",
        ),
        Row(
            "the provider announces that the box ends",
            "everything is saved and copied off the box, the programs leave in time, and no level is blamed for it",
            "supervisor/policy/upkeep/notices.py",
            "e2e/test_notices_live.py::test_an_announced_end_is_saved_copied_and_called_preempted",
        ),
        Row(
            "that notice is withdrawn, or the box is still there two minutes after its end",
            "the programs start again, and the same notice counts no more",
            "supervisor/policy/upkeep/notices.py",
            "core/test_decide_notices.py::test_a_box_that_is_still_there_goes_on_and_the_same_notice_counts_no_more",
        ),
        Row(
            "the work is over at night: every program is DONE, none can go on, or the budget is spent",
            "with `[when_done]` everything is saved, copied off the box, verified and reported, then a command stops the box, once; "
            "without it, `report` says what the box costs for nothing",
            "supervisor/policy/upkeep/when_done.py",
            WHEN_DONE + "test_the_last_end_is_saved_copied_verified_told_and_then_the_command_runs_once",
        ),
        Row(
            "that command fails, hangs, or succeeds while the box lives on",
            "an alert, and it runs again after 1, 2, 4 ... 60 min; after a restart the wait begins anew",
            "supervisor/policy/upkeep/when_done.py",
            WHEN_DONE + "test_a_command_that_hangs_and_what_the_operator_does_about_it",
        ),
        Row(
            "the work is over, and no copy off the box can be made or verified",
            "the command does not run, as it may destroy the disk; an alert, and the copy is tried again; "
            "`supervisorctl when-done now` overrules",
            "supervisor/policy/upkeep/when_done.py",
            "core/test_decide_when_done.py::test_without_a_verified_copy_the_command_does_not_run_until_the_operator_says_so",
        ),
        Row(
            "a metadata service hangs, drips, lies or redirects",
            "its last word stands, `status` says that it cannot be read, and nothing waits for it",
            "supervisor/adapters/notices/local.py",
            "adapters/test_notice_programs.py::test_a_service_that_does_not_end_is_given_up_by_the_daemon",
        ),
        Row(
            "the repository cannot be reached, or its password is wrong",
            "every program trains on; restic's own words are in `status`, tries become rarer, and an alert goes out when the "
            "newest copy is too old",
            "supervisor/policy/upkeep/offsite.py",
            "e2e/test_offsite_live.py::test_a_repository_that_cannot_be_reached_stops_nobody_and_is_told",
        ),
        Row(
            "the repository is full",
            "the same; with room again, the next copy is complete",
            "supervisor/adapters/offsite/restic.py",
            OFFSITE + "test_a_full_repository_is_told_and_the_next_copy_is_whole",
        ),
        Row(
            "the repository is slow",
            "a copy ends after `timeout_s`; no program waits for it",
            "supervisor/adapters/offsite/restic.py",
            OFFSITE + "test_a_slow_repository_costs_no_more_than_its_time",
        ),
        Row(
            "the repository is damaged",
            "the weekly check reports it with an alert; a damaged copy is refused before anything is put into place",
            "supervisor/adapters/offsite/restoring.py",
            OFFSITE + "test_a_damaged_copy_is_refused_and_nothing_is_put_into_place",
        ),
        Row(
            "a killed restic has left its lock in the repository",
            "it is removed; the lock of a process that lives, here or elsewhere, is waited for, at most a minute",
            "supervisor/adapters/offsite/restic.py",
            OFFSITE + "test_a_lock_in_use_is_left_alone_and_one_left_by_a_kill_is_removed",
        ),
        Row(
            "a box dies while it prunes or checks the repository",
            "another box restores without waiting; its take-over removes the lock of the dead box",
            "supervisor/policy/upkeep/offsite.py",
            OFFSITE + "test_a_box_that_died_within_prune_does_not_keep_its_successor_waiting",
        ),
        Row(
            "a file of one program cannot be read, or its disk fails there",
            "the copy has everything else, of this program and of the others; `status` and `offsite` name the file",
            "supervisor/adapters/offsite/staging.py",
            "adapters/test_offsite_files.py::"
            "test_files_that_may_not_be_read_cost_their_program_nothing_else_and_the_others_nothing",
        ),
        Row(
            "the clock of a box was ahead while it made copies",
            "the newest copy is the one that was made last, also for a restore and for the removal of old copies",
            "supervisor/policy/upkeep/offsite.py",
            OFFSITE + "test_a_clock_that_was_ahead_makes_no_copy_that_stays_the_newest",
        ),
        Row(
            "the daemon is killed in the middle of a copy",
            "restic ends with it, or the next daemon ends it; the next copy is complete and the repository is sound",
            "supervisor/adapters/offsite/staging.py",
            OFFSITE + "test_a_copy_killed_at_any_moment_leaves_a_repository_that_takes_the_next_one",
        ),
        Row(
            "a restore is killed",
            "the directory has no journal, so nothing starts on it; asked again, the restore is complete",
            "supervisor/adapters/offsite/restoring.py",
            OFFSITE + "test_a_restore_killed_at_any_moment_is_done_whole_by_the_next_one",
        ),
    ),
    "The host and its clock": (
        Row(
            "the host reboots",
            "everything that ran resumes; the cause (panic, heat, hang, power ...) is one line in `reboot_alerts.log`; "
            "no program is blamed",
            "supervisor/deciding/startup.py",
            "e2e/test_reboot.py::test_after_a_power_cut_everything_that_ran_resumes",
        ),
        Row(
            "the kernel panics or hangs",
            "rebooted by kernel.panic, or reset by the watchdog that systemd feeds (`doctor` lists missing settings); "
            "reported as `panic` or `watchdog` if the box keeps a trace, else as `power`",
            "supervisor/policy/box/reboot_cause.py",
            "lab/test_lab_panic.py::test_a_panic_reboots_the_box_and_is_told_as_one",
        ),
        Row(
            "the disk is copied or moved to another box",
            "everything resumes; the new box begins its own record of levels and reboots, and no power cut is counted; "
            "`status`, `history` and the alert report it ([another box](box.md#another-box))",
            "supervisor/policy/box/box_identity.py",
            "e2e/test_reboot.py::test_a_copied_box_begins_its_own_record_and_trains_on",
        ),
        Row(
            "the wall clock jumps ahead by an hour",
            "reported once; no deadline, age or uptime moves",
            "supervisor/adapters/host/clock.py",
            HOST_WORLD + "test_a_wall_clock_that_jumps_moves_nothing_but_what_is_shown",
            "clock-forward",
        ),
        Row(
            "the wall clock jumps back by an hour",
            "the same; calendar jobs go on",
            "supervisor/adapters/host/clock.py",
            HOST_WORLD + "test_a_wall_clock_that_jumps_moves_nothing_but_what_is_shown",
            "clock-back",
        ),
        Row(
            "the clock begins in 1970 (no battery) and is set later",
            "times and downtime are unknown until then, and corrected everywhere afterwards; calendar jobs wait",
            "supervisor/deciding/clocks.py",
            HOST_WORLD + "test_a_clock_that_begins_in_1970_is_mended_once_it_is_set",
        ),
        Row(
            "a dead worker's pid belongs to another process",
            "that process is neither adopted nor signalled",
            "supervisor/adapters/procfs.py",
            HOST_WORLD + "test_a_pid_that_came_back_as_somebody_else_is_neither_adopted_nor_signalled",
            "pid-reuse",
        ),
        Row(
            "no process can be started (EAGAIN)",
            "tried again after 1, 2, 4 ... s and not counted against any program; the daemon keeps answering",
            "supervisor/policy/worker/restart.py",
            HOST_WORLD + "test_while_nothing_can_be_forked_starts_are_tried_again_and_held_against_nobody",
            "fork-fails",
        ),
        Row(
            "descriptors, memory or threads are short for a while (EMFILE, ENFILE, ENOMEM, EAGAIN)",
            "no thread of the daemon ends; a second failure is in `status`, an alert and a 503 of `/healthz`; after two minutes the daemon starts anew and adopts its workers; a start waits until the lack is over",
            "supervisor/policy/box/supervision.py",
            "e2e/test_cost.py::test_after_a_lack_of_descriptors_every_end_is_noticed_and_healthz_is_not_200_meanwhile",
        ),
    ),
    "A container": (
        Row(
            "a container is killed ten times at random moments, and started again or replaced by a new one",
            "its entrypoint goes on from the volume: no step that a program had stored is lost ([how](container.md))",
            "deploy/container/entrypoint",
            "containers/test_killed.py::test_ten_kills_at_random_moments_lose_no_stored_step",
        ),
        Row(
            "the daemon in a container is killed",
            "the entrypoint starts it again after 0.5 s, repeatedly after 1, 2, 4 ... 60 s; the workers train on and are adopted",
            "deploy/container/first-process.sh",
            "containers/test_entrypoint.py::test_a_killed_daemon_is_started_again_and_a_shutdown_ends_the_container",
        ),
        Row(
            "the volume is missing, read-only, full, or another container runs on it",
            "refused with one sentence and exit status 1: nothing trains in a layer that ends with the container",
            "deploy/container/entrypoint",
            "containers/test_entrypoint.py::test_without_a_volume_it_refuses",
        ),
        Row(
            "an installation onto the volume is interrupted, or its files are damaged",
            "the container ends at once, and the next start installs again; a finished one is tried and used",
            "deploy/container/entrypoint",
            "containers/test_entrypoint.py::test_an_installation_is_used_again_and_a_damaged_one_made_anew",
        ),
        Row(
            "the container refuses pidfds (EPERM or ENOSYS of its seccomp profile)",
            "workers are watched by their number and start time, 50 times a second: each end is noticed, each tree ended",
            "supervisor/adapters/procfs.py",
            "e2e/test_container_live.py::test_without_pidfds_every_end_is_noticed_and_every_tree_ended",
        ),
        Row(
            "the kernel kills a process of a neighbour for its memory, and a worker dies of a SIGKILL of somebody",
            "the worker was killed, and keeps its batch: only the container's own counter of OOM kills counts (cgroup v1 or v2)",
            "supervisor/policy/worker/out_of_memory.py",
            "adapters/test_shim.py::test_the_oom_killers_count_is_that_of_its_own_cgroup",
        ),
        Row(
            "a container is started again, while its host goes on",
            "history says so, and every program resumes; also where the containers of a pod share their processes and pid 1 stays",
            "supervisor/adapters/host/boot.py",
            "adapters/test_boot.py::test_where_containers_share_their_processes_two_others_are_needed",
        ),
        Row(
            "a container is stopped, and its time runs out before all have saved",
            "an orderly end, held against no level; with `stop_within_s` those that lose most per second of saving leave first",
            "supervisor/policy/upkeep/notices.py",
            "core/test_decide_notices.py::test_who_loses_most_leaves_first_and_the_copy_has_the_rest",
        ),
        Row(
            "a worker dies of SIGBUS, ENOSPC or EDQUOT",
            "restarted as after any death; the sentence names the file system that was full, or a /dev/shm that is too small",
            "supervisor/policy/worker/no_room.py",
            "e2e/test_container_live.py::test_a_worker_that_a_small_dev_shm_kills_is_told_so",
        ),
        Row(
            "two containers start with one network volume as their state directory",
            "the second one is refused while the first one renews its lease; it takes over once that has stood still for 45 s",
            "supervisor/adapters/slurm/lease.py",
            "e2e/test_container_live.py::test_of_two_containers_on_one_network_volume_only_one_trains",
        ),
        Row(
            "all of a container is killed with SIGKILL",
            "it counts against the level as far as that ends more often than those below it; never in the level's first minute",
            "supervisor/policy/level/attribution.py",
            "policy/test_attribution.py::"
            "test_a_container_that_is_killed_is_held_against_the_level_as_far_as_its_record_says_so",
        ),
    ),
    "The daemon and its configuration": (
        Row(
            "the daemon is killed (-9)",
            "workers train on; the next daemon adopts all of them and reads the exit records of those that ended meanwhile",
            "supervisor/deciding/startup.py",
            "e2e/test_adoption.py::test_a_killed_daemon_loses_nobody",
        ),
        Row(
            "the daemon is killed while a command runs that it awaits: a health check, a hook, a notice command",
            "the next daemon ends that command, not what the command has put into the background",
            "supervisor/adapters/leftovers.py",
            "adapters/test_leftovers.py::test_a_child_whose_daemon_is_gone_is_ended_and_another_s_is_not",
        ),
        Row(
            "the daemon is upgraded",
            "`supervisorctl reload` replaces it in place; workers are not touched",
            "supervisor/deciding/requests.py",
            "e2e/test_adoption.py::test_reload_replaces_the_daemon_in_place",
        ),
        Row(
            "the new version is broken",
            "if it does not start, become ready or answer, the previous version comes back by itself; workers are not touched "
            "([upgrades](box.md#upgrades))",
            "deploy/health.py",
            "lab/test_lab_upgrade.py::test_a_broken_version_is_left_again",
        ),
        Row(
            "the configuration has a mistake at a reload",
            "refused with a list of all mistakes and exit status 1; the daemon keeps its configuration, and `status` shows the "
            "mistakes until the file is corrected",
            "supervisor/adapters/next_image.py",
            "e2e/test_last_config.py::test_a_reload_of_a_bad_file_is_refused_with_all_its_mistakes",
        ),
        Row(
            "the configuration has a mistake at an update",
            "refused with a list of all mistakes; running programs are not touched",
            "supervisor/deciding/requests.py",
            "e2e/test_operator.py::test_a_bad_edit_leaves_the_running_one_alone",
        ),
        Row(
            "the configuration is bad, gone or unreadable at a boot",
            "the daemon starts with the last good one and reports it in `status`, /healthz, its log and an alert",
            "supervisor/adapters/last_config.py",
            "e2e/test_last_config.py::test_a_boot_with_a_bad_file_trains_on_with_the_last_good_one",
        ),
        Row(
            "the daemon itself is suspended for a minute",
            "that minute is not counted against any worker",
            "supervisor/policy/worker/absence.py",
            HOST_WORLD + "test_a_daemon_that_stood_still_judges_nobody_and_goes_on",
            "daemon-stopped",
        ),
        Row(
            "systemd starts a daemon that cannot start",
            "tried again after 1, 2, 4 ... 60 s, with an alert; a stop takes effect at once",
            "supervisor/adapters/process/starts.py",
            "adapters/test_starts.py::test_a_stop_ends_the_wait_and_the_next_start_is_at_once",
        ),
        Row(
            "a second daemon is started",
            "refused, with the pid of the first",
            "supervisor/adapters/singleton.py",
            "e2e/test_two_daemons.py::test_of_four_daemons_started_at_once_one_decides",
            "two-daemons",
        ),
        Row(
            "you stop a program",
            "it stays stopped, also after restarts of the daemon and reboots",
            "supervisor/deciding/requests.py",
            "e2e/test_operator.py::test_stop_start_restart_and_what_is_stopped_stays_stopped",
        ),
        Row(
            "something goes wrong at night",
            "you get an [alert](alerts.md) by mail, push message or your own command; undelivered alerts wait, also through "
            "crashes and reboots; a flood becomes one message",
            "supervisor/policy/upkeep/alerting.py",
            "e2e/test_alerts_live.py::test_a_reboot_is_told_to_everybody_over_a_killed_daemon",
        ),
    ),
    "Files and disks": (
        Row(
            "the disk under the journal is full",
            "no action starts without a record; workers train on, `status` reports it, and requests are answered; the daemon "
            "goes on by itself once there is room",
            "supervisor/shell/loop.py",
            "e2e/test_disk_full.py::test_a_full_disk_holds_up_what_is_new_and_nothing_else",
            "disk-full-journal",
        ),
        Row(
            "the state directory is removed, unmounted or covered while extralife runs",
            "running workers train on, nothing is started or written in its place, requests are refused, `/healthz` is 503; all goes on when it is back; a start without its mount is refused ([more](box.md#files-it-relies-on))",
            "supervisor/policy/box/foundations.py",
            "e2e/test_journal_lost.py::test_a_state_directory_that_is_away_holds_up_what_is_new_until_it_is_back",
            "state-away",
        ),
        Row(
            "the journal is removed or replaced while extralife runs",
            "built again before any answer, from the open file and `journal-copy/`; a file in its place is kept under another name ([more](box.md#files-it-relies-on))",
            "supervisor/adapters/journal/open_files.py",
            "e2e/test_journal_lost.py::test_a_journal_removed_under_a_daemon_is_written_anew_and_what_was_answered_holds",
            "journal-removed",
        ),
        Row(
            "the journal is damaged",
            "the damaged file is kept, and a new one is built from its readable facts, the verified copy of every hour and the "
            "facts since; the number of lost facts is in `status`, `history` and the alert log; running workers are adopted",
            "supervisor/adapters/journal/spare.py",
            "e2e/test_journal_lost.py::test_a_damaged_journal_is_told_where_one_looks_and_what_was_answered_holds",
        ),
        Row(
            "an index of the journal is damaged or missing",
            "the next start makes it again, and the main log says so; no fact is lost",
            "supervisor/adapters/journal/schema.py",
            "adapters/test_journal_start.py::test_an_index_that_is_damaged_is_made_again_and_that_is_said",
        ),
        Row(
            "`summaries.sqlite` is missing, damaged, or of another version or journal",
            "it is made again in the background (the main log says why, unless it was missing); meanwhile pages of up to 12 hours are answered, longer ones wait",
            "supervisor/adapters/journal/summaries.py",
            "sim/test_pages_of_windows.py::test_while_the_whole_is_made_a_window_of_12_hours_is_answered_and_equals_that_of_the_whole",
        ),
        Row(
            "the journal has grown for months",
            "facts older than `keep_days` (30) move to `journal-archive/`; nothing is deleted, and the state stays the same",
            "supervisor/adapters/journal/archive.py",
            "adapters/test_journal_archive.py::test_the_fold_stays_and_nothing_is_lost",
        ),
        Row(
            "the runtime directory or the control socket is removed",
            "extralife restarts itself within seconds, which makes all of it again; workers run on ([more](box.md#files-it-relies-on))",
            "supervisor/policy/box/foundations.py",
            "e2e/test_runtime_lost.py::test_a_removed_runtime_directory_is_made_again_with_all_that_was_in_it",
            "runtime-removed",
        ),
        Row(
            "the runtime directory's file system is full or read-only",
            "no worker is started meanwhile; workers train on; `status`, an alert and a 503 of `/healthz`",
            "supervisor/policy/box/foundations.py",
            "e2e/test_runtime_lost.py::test_a_start_waits_while_the_runtime_directory_has_no_room",
        ),
        Row(
            "state directory, runtime directory, journal, lock or several of them vanish while no daemon runs",
            "the next daemon finds the living workers by their marks in /proc and adopts them",
            "supervisor/adapters/process/marks.py",
            "adapters/test_processes.py::test_whatever_vanished_while_no_daemon_ran_a_living_worker_is_adopted",
        ),
        Row(
            "a worker's log is removed, renamed or replaced under it, as by logrotate",
            "it is read through the file that the worker has open; `status` and an alert report it until the next start of the program",
            "supervisor/adapters/process/growth.py",
            "adapters/test_growth.py::test_a_log_that_was_taken_away_is_measured_through_the_file_that_its_worker_has_open",
        ),
        Row(
            "the file system of a program's log hangs",
            "its readings are unknown: trouble in `status`, an alert, a 503 of `/healthz`; the other programs are supervised",
            "supervisor/adapters/threads.py",
            "e2e/test_cost.py::test_a_log_on_a_file_system_that_hangs_is_reported_and_hides_no_other_program",
        ),
        Row(
            "a file of extralife's is replaced by a FIFO, a directory or a socket, while it runs or before its start",
            "nothing waits for it; it becomes NAME.found, the file is made again, and an alert names both; a "
            "`journal.sqlite.rebuilt` that is not the newest whole journal replaces none",
            "supervisor/policy/box/foundations.py",
            "e2e/test_runtime_lost.py::test_another_kind_of_file_under_a_name_of_the_daemon_stops_neither_it_nor_the_next",
        ),
        Row(
            "another user may write to the runtime directory, or to a directory above it",
            "a start is refused, also by `--check` and `doctor`; the daemon executes no file in it",
            "supervisor/trust.py",
            "config/test_config_directories.py::test_a_runtime_directory_that_others_may_change_is_refused",
        ),
    ),
}

ROWS = tuple(row for rows in SECTIONS.values() for row in rows)
FAULTS = {row.fault: row.when for row in ROWS if row.fault is not None}

_INTRO = """\
# What happens when ...

Read this when you want to know what extralife does about a fault, by which rule, and which test shows it.

Each rule is one file. Its first lines state the rule, with a worked example and the reason against the obvious alternative.
`tests/run faults` runs the tests of all faults of the catalogue, on real processes and as stories in the simulator, and
prints them with their times. This page is made from [the catalogue](../tests/catalogue.py):
`python tests/catalogue.py > docs/faults.md`.
"""


def page() -> str:
    """The whole of docs/faults.md."""
    parts = [_INTRO]
    for title, rows in SECTIONS.items():
        lines = [f"| {row.when} | {row.then} | {_rule(row)} | {_test(row)} |" for row in rows]
        parts.append("\n".join([f"## {title}\n", "| when | then | rule | test |", "|---|---|---|---|", *lines, ""]))
    return "\n".join(parts)


def _rule(row: Row) -> str:
    return f"[{Path(row.rule).stem}](../{row.rule})"


def _test(row: Row) -> str:
    file, _, function = row.test.partition("::")
    return f'[test](../tests/{file} "{function}")'


if __name__ == "__main__":
    sys.stdout.write(page())
