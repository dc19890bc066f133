"""Whole stories: every field of every fact and command, and every page at the end, against files in `stories/`.

Other tests look at the field that their rule is about. A fault in another one (a sentence, a name of JSON, an argument that
was left out) shows here. After an intended change: `EXTRALIFE_WRITE_STORIES=1 .venv/bin/pytest tests/core/test_whole_stories.py`,
and read the diff, since it is what operators will read.
"""

import dataclasses
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import test_decide_alerts
import test_decide_attempts
import test_decide_backups
import test_decide_beginning
import test_decide_box
import test_decide_clock
import test_decide_cluster
import test_decide_early_ends
import test_decide_figures
import test_decide_foundations
import test_decide_gate
import test_decide_hardware
import test_decide_healing
import test_decide_health
import test_decide_health_checks
import test_decide_journal
import test_decide_levels
import test_decide_notices
import test_decide_offsite
import test_decide_operator
import test_decide_own_checkpoints
import test_decide_remedies
import test_decide_services
import test_decide_silence
import test_lost_facts
import test_time_spent
from core_kit import Core, gpu, gpus, settings
from fakes import FakeSources
from test_decide_levels import Box, ladder, power_cut

from supervisor.model import facts
from supervisor.model.codec import encode
from supervisor.model.inputs import (
    AlertTried,
    Asked,
    BackupChecked,
    BackupDue,
    BackupMade,
    BackupRestored,
    Began,
    BootEvidence,
    Report,
    Survival,
    Survivor,
    Verb,
)
from supervisor.model.lifecycle import Phase
from supervisor.model.memory import Memory
from supervisor.model.settings import ProgramSpec, Progress, Settings
from supervisor.model.snapshot import encoded
from supervisor.model.state import State
from supervisor.policy.box.gate import MB
from supervisor.policy.box.prechecks import PrecheckSettings
from supervisor.policy.box.readings import Gpus, Host, Xid
from supervisor.policy.upkeep.alerting import AlertSettings
from supervisor.policy.worker.health import ACTIONS
from supervisor.reports.accounts import summary
from supervisor.reports.accounts_view import accounts_view
from supervisor.reports.alerts_view import alerts_view
from supervisor.reports.climb_view import climb_view
from supervisor.reports.cost_view import Games, cost_view
from supervisor.reports.hardware_view import gpu_view, vetoes_view
from supervisor.reports.ledger import fold_accounts
from supervisor.reports.metrics_view import metrics_view
from supervisor.reports.status_view import status_view
from supervisor.reports.view import program_views, spec_view
from workers.contract import EXIT_DIVERGED, EXIT_NO_MEMORY

OTHERS = {  # scenes of other tests of core (with arguments where they take any), whole: what came of each turn that did anything
    "health": (
        test_decide_health, "a_q_beyond_what_the_game_can_pay_is_rolled_back_to_when_it_was_well",
        "the_budget_is_that_of_divergences_and_then_it_is_given_up",
        *(("a_fallen_return_is_told_after_so_many_games_and_what_follows_is_the_programs_choice", each) for each in ACTIONS),
        "a_collapsed_policy_is_told_once_shown_and_over_when_it_tries_again", "new_seeds_have_a_budget_too",
        "a_checkpoint_beyond_it_forgives_only_when_it_was_well_then",
    ),
    "remedies": (
        test_decide_remedies, "a_divergence_goes_back_to_an_older_checkpoint_with_other_chance",
        "after_three_roll_backs_it_is_given_up_and_a_word_of_the_operator_forgives",
        "each_level_remembers_its_batch_through_other_levels_and_other_daemons",
        "a_kill_that_is_accounted_for_is_not_held_against_the_next",
        "a_failed_save_is_told_and_over_with_the_next_one_that_works",
        "a_crawl_that_lasts_is_started_again_once_in_a_while_and_holds_nothing_against_it",
        "a_crawl_of_all_is_the_boxs_and_no_restart_helps",
        "a_worker_that_beats_on_with_bad_losses_is_ended_and_one_bad_batch_is_forgiven",
        "a_roll_back_that_a_dead_daemon_only_recorded_is_carried_out_before_the_next_start",
        "what_has_no_batch_or_takes_no_other_only_waits",
        (
            "out_of_memory_lowers_the_batch_of_this_level_until_somebody_changes_something",
            {"signal": 9, "oom_line": "Killed process 7 (python)"},
        ),
        "a_kill_in_a_cgroup_of_its_own_is_held_against_that_worker_whatever_was_counted_elsewhere",
        ("another_setting_of_the_program_or_of_its_level_forgets_them", "heavy", "own"),
        (
            "out_of_memory_lowers_the_batch_of_this_level_until_somebody_changes_something",
            {"code": 1, "last_lines": ("torch.OutOfMemoryError: CUDA out of memory.",)},
        ),
        "without_any_checkpoint_only_chance_is_changed",
    ),
    "foundations": (
        test_decide_foundations, "a_try_that_failed_is_trouble_until_a_later_one_succeeds",
        "what_the_loop_restored_comes_first_and_is_an_alert", "alerts_say_trouble_and_its_end",
        "no_worker_is_started_on_a_state_directory_that_is_not_ours",
        "what_is_restored_every_day_is_recorded_only_when_it_fails",
        "what_lies_in_a_directory_that_is_gone_is_not_told_beside_it",
    ),
    "clock": (
        test_decide_clock, "the_times_of_the_boot_are_mended_once_it_is_set",
        "a_clock_that_is_set_while_no_daemon_looks_is_noticed_by_the_next",
        "without_a_reboot_or_what_its_downtime_takes_only_times_are_mended",
    ),
    "healing": (
        test_decide_healing, "evidence_comes_before_healing", "a_stopped_process_is_continued_first_and_revived",
        "state_d_is_reported_once_and_healed_when_a_signal_can_reach_it", "gaps_are_learned_and_widen_the_limit",
        "failures_and_reboots_shorten_it", "slowness_is_told_once_until_it_is_over",
        "one_of_ours_that_has_never_saved_is_overdue_since_its_training_began",
        "a_start_that_never_trains", "flapping_between_d_and_s_is_no_flood_of_facts",
        "a_process_that_stays_stopped_is_examined_and_ended", "what_a_worker_says_cannot_move_the_cursor_of_who_reads_it",
        "the_ladder_goes_on_over_a_daemons_death",
        "a_program_that_trains_on_without_saving_is_reported_once_until_it_saves",
        ("other_classes_are_healed_too", {"live_at_s": 0.0}),
        "an_adopted_worker_of_which_nothing_is_known_yet_is_not_judged_by_its_age",
    ),
    "attempts": (
        test_decide_attempts, "asked_to_stop_while_it_was_being_started",
        "the_breaker_opens_hands_the_slot_on_and_only_health_closes_it",
        "fewer_slots_shed_the_least_important_and_more_bring_it_back", "a_worker_that_saved_as_it_left_has_lost_nothing",
        "a_start_from_scratch_is_reported_never_silent",
        "a_checkpoint_that_kills_three_times_is_set_aside_and_the_one_before_is_tried",
        "a_checkpoint_that_was_never_set_aside_is_so_when_somebody_resumes_from_it",
        "a_damaged_newest_checkpoint_does_not_hide_the_newer_ones_after_it",
        "a_command_that_is_gone_is_given_up_where_another_one_has_run", "slots_go_by_priority_then_by_waiting",
        ("exits", {"code": 1, "last_lines": ("RuntimeError: x",)}, "crash", Phase.STARTING),
        "a_spawn_that_breaks_after_its_program_left_the_config", "reports_count_once_over_looks_ends_and_daemons",
        "a_kept_slot_is_not_kept_beyond_a_lowered_level", "a_spawn_that_can_never_work_is_given_up_until_something_changes",
        "the_age_of_a_checkpoint_goes_with_its_step", ("exits", {"code": 77}, "fenced", Phase.STARTING),
        ("exits", {"code": 75}, "left", Phase.STARTING), ("exits", {"signal": 11}, "crash", Phase.STARTING),
        "without_a_last_beat_it_was_where_it_was_last_seen", "checkpoint_facts_are_limited_and_never_go_back",
        "a_command_that_is_gone_although_it_has_run_is_tried_again",
    ),
    "operator": (
        test_decide_operator, "who_waits_for_a_worker_that_the_kernel_holds_is_told_so",
        "stop_after_restart_leaves_it_down_and_answers_both",
        "the_way_down_save_and_leave_then_sigkill_then_again_more_seldom", "an_update_of_one_section_changes_that_one_alone",
        "a_refused_configuration_is_on_record_until_a_good_one_is_applied",
        "logs_are_cleared_by_those_who_may_block_and_strangers_are_told", "nothing_to_stop_is_answered_too",
        "start_while_it_still_leaves_brings_it_back", "reload_keeps_the_workers",
        "one_request_for_several_is_answered_once_the_last_is_down", "an_update_touches_only_what_it_changes",
        ("the_logs_that_are_cleared_are_those_of_the_configuration", {"stdout_log": "NONE", "stderr_log": "NONE"}, ()),
        ("an_orderly_end_waits_for_all", "SIGTERM"), ("what_ran_keeps_its_slot_over_what_is_not_its_own_doing", "restart"),
        ("the_three_sections_of_the_load_come_together", "[levels]"),
        ("what_ran_keeps_its_slot_over_what_is_not_its_own_doing", "reboot"),
        ("a_removed_program_in_every_phase", Phase.QUEUED),
        "a_program_that_left_and_came_back_goes_on_counting_its_attempts", "of_many_mistakes_the_first_are_told",
        ("a_name_that_is_not_there", "stop"), "only_the_named_programs_are_updated",
    ),
    "gate": (
        test_decide_gate, "it_is_gated_once_and_starts_when_the_memory_is_free", "it_may_wait_for_ever_or_be_given_up",
        "a_restart_that_is_due_before_the_first_look_waits_in_the_queue",
        "what_it_held_before_is_what_its_next_start_waits_for", "a_slot_that_is_taken_away_ends_the_wait",
        "a_gpu_that_does_not_come_back_after_a_reboot_is_waited_for",
        "a_program_of_another_gpu_and_one_without_a_need_start", "it_waits_on_over_a_restart_of_the_daemon",
        "a_gpu_that_this_box_never_had_is_refused_and_gives_its_slot_to_the_next",
    ),
    "cluster": (
        test_decide_cluster, "a_job_is_on_record_when_the_queue_shows_it_and_again_when_it_has_a_node",
        "a_job_that_was_too_slow_to_save_waits_before_the_next_one",
        "a_job_that_slurm_puts_back_goes_on_as_the_next_attempt_with_the_token_that_its_node_knows",
        "somebody_who_deletes_a_job_has_stopped_its_program",
        "a_node_that_loses_jobs_again_and_again_is_avoided_for_a_while", "gpu_time_is_booked_on_the_account",
        "a_cluster_that_does_not_answer_is_told_once_and_changes_nothing_else",
        "a_signal_ends_the_daemon_and_leaves_the_jobs_and_a_request_ends_both",
        "a_pinned_level_stays_and_its_record_shows_the_fault",
        "a_start_that_failed_leaves_no_job_on_record", "preemptions_and_launches_that_fail_count_against_no_level",
        "a_job_that_never_began_has_used_nothing", "what_was_saved_at_the_time_limit_is_not_lost",
        "a_lost_job_without_the_name_of_its_node_blames_none", "gpus_that_are_not_known_are_not_none",
        "a_level_is_climbed_to_with_its_resources_and_left_when_a_node_fails_under_its_trial",
    ),
    "offsite": (
        test_decide_offsite, "a_failure_is_on_record_and_tried_again_ever_more_rarely",
        "a_program_that_could_not_be_copied_is_named", "the_calendars_are_answered_once_and_their_ends_are_on_record",
        "a_copy_that_somebody_waits_for_takes_the_place_of_a_check",
        "a_box_on_which_another_has_taken_over_stops_its_programs_and_starts_none",
        "a_fenced_box_that_is_given_another_repository_goes_on_once_that_says_nothing_of_a_take_over",
        "nor_does_another_boxs_repository_keep_it_down", "take_over_brings_the_programs_back",
        "an_orderly_reboot_waits_for_a_last_copy",
        "another_level_is_a_reason_at_once_and_so_is_the_operator", ("other_ends_do_not_wait", "fenced"),
        "without_a_reboot_or_a_lease_of_its_own_nothing_waits",
    ),
    "notices": (
        test_decide_notices, "two_minutes_are_used_to_the_last_second",
        "a_risk_is_saved_and_copied_and_training_goes_on", "a_notice_that_is_withdrawn_starts_everybody_again",
        "a_box_that_is_still_there_goes_on_and_the_same_notice_counts_no_more",
        "another_box_that_goes_on_knows_why_the_first_one_ended",
        "a_script_without_beats_is_told_by_its_file_and_asked_to_leave_in_time",
        "an_end_without_a_time_is_copied_and_trained_on", "alerts_go_out", "without_a_repository_it_saves_and_leaves",
    ),
    "own_checkpoints": (
        test_decide_own_checkpoints, "a_start_says_with_which_checkpoint_it_begins",
        "the_steps_that_a_death_cost_are_booked_exactly_where_its_beats_say_how_far_it_was",
        "a_torn_one_is_set_aside_after_three_deaths_with_it",
        "what_the_disk_refuses_to_rename_is_set_aside_before_the_next_start",
        "a_whole_one_that_kills_three_times_after_training_began_is_set_aside_by_its_path",
        "a_divergence_sets_aside_from_that_step_on_before_the_next_start",
        "a_newer_one_is_put_on_record_every_ten_minutes_and_at_the_end",
        "a_program_that_stopped_saving_is_unsaved_until_the_next_one",
        "what_may_be_cut_is_told_to_the_look_before_the_start",
        ("where_it_goes_on_is_unknown", {}, {"steps": 30}, "counts its steps from below 900, the step of its newest checkpoint"),
        ("where_it_goes_on_is_unknown", {"step": None}, {}, "the step of checkpoint /w/900.pt is not known: set checkpoint_step"),
        ("where_it_goes_on_is_unknown", {"sure": False}, {}, "may have begun with a checkpoint that is newer than /w/900.pt"),
        ("a_script_that_saves_as_it_is_asked_to_leave_has_lost_nothing", 1.0, True, {"code": 0}, (0, False)),
        "of_one_without_a_time_the_path_says_that_it_is_another", "status_shows_age_size_and_path_alive_and_ended",
        "the_first_attempt_resumes_from_what_lies_there_and_has_lost_nothing",
        "without_an_older_whole_one_nothing_is_set_aside_and_health_forgives",
    ),
    "silence": (
        test_decide_silence, "when_it_stops_working_it_is_silent_after_the_limit",
        "one_that_was_to_be_ended_for_silence_and_works_again_is_left_alone",
        "a_child_that_no_signal_reaches_is_named_and_its_tree_is_not_healed",
        ("a_restart_that_does_not_say_where_it_goes_on_is_put_on_record_once", Progress.AUTO),
    ),
    "services": (
        test_decide_services, "fewer_slots_and_rotation_leave_it_alone",
        ("after_which_ends_it_is_started_again", "never", {"code": 1}, Phase.FATAL),
        "one_that_is_to_run_always_and_leaves_at_once_waits_longer_each_time",
        "it_comes_back_although_every_slot_is_taken",
        "a_training_waits_behind_a_service_that_waits_for_the_memory_of_the_same_gpu",
    ),
    "early_ends": (
        test_decide_early_ends, "one_that_had_started_begins_at_zero_again_and_is_restarted_as_any_other",
        "a_stop_and_a_configuration_that_cannot_work_are_no_failed_starts",
        ("failed_starts_are_tried_again_as_often_as_it_says_then_given_up", {"code": 0}, "failed"),
        "without_start_retries_an_early_end_is_a_death_as_any_other", "it_counts_as_started_once_it_has_lived_for_start_s",
    ),
    "lost": (
        test_lost_facts, "a_stranger_of_a_program_that_is_to_be_down_is_stopped",
        "a_waiting_program_that_was_to_stop_stays_down_though_what_followed_was_lost",
        "an_end_without_its_consequence_leaves_nobody_between_phases",
        "a_program_whose_start_was_asked_for_starts_though_what_followed_was_lost",
        ("a_stranger_of_a_program_in_any_phase_is_taken_over", Phase.FATAL), "a_stranger_that_is_none_changes_nothing",
    ),
    "figures": (
        test_decide_figures, "an_attempt_that_shows_a_smaller_step_first_has_lost_at_least_the_steps_between",
        "what_is_not_read_is_told_once_for_each_reason", "a_printed_nan_is_a_divergence_after_a_minute",
        ("a_checkpoint_that_it_starts_with_says_the_step_unless_its_own_first_step_is_below", 4, facts.FirstStepShown, 4),
        ("nobody_waits_for_a_first_step_that_will_not_come", {"unread": "log_regex has matched none"}),
    ),
    "time": (
        test_time_spent, "a_start_is_told_by_its_phases", "what_is_worth_it_is_told_every_ten_minutes",
        "slow_time_is_told_as_such", "a_daemon_that_stood_still_tells_both_sides_of_it",
        "one_that_died_while_no_daemon_was_there", "the_rate_is_remembered_for_what_the_next_reboot_costs",
        "of_one_that_is_never_judged_being_there_is_proof_enough", "one_that_was_still_starting",
        "one_that_was_being_healed",
    ),
    "levels": (
        test_decide_levels, "a_reboot_while_pinned_moves_nothing", "a_pin_on_what_is_vetoed_is_obeyed_and_says_so",
        "a_pin_whose_level_is_gone_ends", "a_pin_survives_a_restart_and_runs_out",
        "a_slot_is_handed_on_after_its_hours", "a_reboot_of_which_little_is_known_counts_half",
        "nothing_is_earned_while_nobody_looks_or_nothing_trains",
        "nobody_hands_on_to_the_less_important_and_a_crash_is_no_fresh_start",
        "what_was_given_up_for_memory_has_another_chance", "a_fixed_level_is_told_by_its_reboots",
        "a_pin_from_before_the_climb_begins_is_where_the_record_begins",
        "a_reboot_under_such_scripts_counts_against_no_level", "a_fixed_ladder_is_where_its_start_says_and_can_be_pinned",
        "a_reboot_right_after_a_step_down_is_held_against_the_level_left",
        "a_script_that_counts_from_zero_again_does_not_take_back_what_was_made",
        "an_update_keeps_the_record_of_the_levels_that_stay", "a_reboot_that_somebody_meant_changes_nothing",
        "a_script_that_takes_of_the_level_is_measured_alone_and_moves_while_the_others_are_left_alone",
    ),
    "beginning": (
        test_decide_beginning, "a_killed_daemon_adopts_every_worker", "never_started_and_not_wanted_any_more",
        "adopted_but_changed_in_the_config", "frequent_reboots_are_named_as_a_pattern",
        "a_program_that_left_the_config_while_the_host_was_down",
        "what_others_have_saved_is_only_known_as_of_the_sign_of_life", "an_orderly_reboot_is_not_held_against_the_level",
        "steps_that_are_on_record_as_lost_are_not_lost_again",
        ("the_end_of_those_that_died_meanwhile_is_known", Survival.ENDED, {}, "lost", True), "a_reboot_with_nothing_known",
        "why_the_box_went_down_is_on_record", "a_reboot_empties_no_backoff",
        "lost_work_is_told_again_by_the_worker_that_resumes", "adopted_without_a_known_pid",
        ("intended_but_never_started", None),
    ),
    "health_checks": (
        test_decide_health_checks, "a_row_of_failures_is_examined_told_and_healed_as_a_hang_is",
        "one_that_answers_again_before_it_is_stopped_is_left_alone",
        "what_is_not_known_is_not_unhealthy",
    ),
    "alerts": (
        test_decide_alerts, "a_target_that_fails_is_tried_again_and_told_of_once",
        "what_is_too_old_is_dropped_and_the_next_that_arrives_says_so", "the_same_again_is_counted_and_told_as_one",
        "a_damaged_journal_is_told_once_by_the_daemon_that_found_it", "a_level_that_a_reboot_has_cost",
        "the_daily_report_goes_out_once_for_each_of_its_times", "a_target_that_leaves_the_config_is_owed_nothing",
        "each_target_has_its_own_queue", "a_clock_that_was_years_ahead_does_not_end_the_daily_report", "gpus",
        "a_journal_that_could_not_be_written", "a_reboot_with_what_it_cost", "a_box_that_is_another_one_is_a_warning",
        "a_resume_that_finds_nothing_where_there_was_a_checkpoint_is_told", "a_checkpoint_that_is_set_aside", "the_page",
        "grave_errors_of_a_gpu", "a_pattern_of_reboots_is_in_the_alert", "a_full_disk_of_the_box",
        "a_daemon_that_had_not_ended_in_order", "a_checkpoint_that_cannot_be_written",
        "a_daemon_that_was_killed_before_it_arrived_leaves_it_to_the_next",
        "a_program_that_is_given_up_is_told_in_the_transaction_of_that_fact", "the_breaker",
    ),
    "rollbacks": (
        test_decide_backups, "one_that_waits_after_a_death_waits_for_the_rollback_instead",
        "a_program_that_was_done_trains_again_and_one_that_was_stopped_stays_down",
        "a_program_that_could_not_be_saved_is_named_and_an_alert",
        ("another_daemon_goes_on_with_a_rollback_from_where_it_was", "left"), "a_backup_that_fails_says_why",
        "nothing_is_begun_while_extralife_ends",
    ),
    "gpus": (
        test_decide_hardware, "a_driver_that_hangs_is_told_once_and_so_is_its_return",
        "a_gpu_that_falls_off_the_bus_is_told_and_so_is_its_return", "needs_are_learned_of_steady_training_and_seldom",
        "a_veto_is_a_fact_bounds_the_ladder_and_is_lifted",
        "each_xid_is_told_and_the_same_again_not_for_ten_minutes",
        "what_our_own_workers_hold_is_not_in_the_way_and_may_be_unknown",
        "needs_are_of_their_level_and_end_with_their_program",
    ),
    "box": (
        test_decide_box,
        "more_is_learnt_of_a_box_and_nothing_is_forgotten", "a_copied_box_begins_its_own_record",
        "boxes_without_a_name_can_differ_too",
    ),
    "journal": (
        test_decide_journal,
        "every_turn_is_a_try_so_that_a_disk_with_room_is_noticed",
    ),
}  # fmt: skip
STORIES = Path(__file__).parent / "stories"
WRITE = bool(os.environ.get("EXTRALIFE_WRITE_STORIES"))
ALERTS = AlertSettings(command=("page-me",), urls=("ntfy://topic",))


class RecordedCore:
    """A core whose decisions are written down."""

    def __init__(self, core):
        self.core, self.lines, self.samples = core, [], {}
        give = core.give

        def noted(item):
            wakes_before_s, decision = core.wake_at_s, give(item)
            self.samples |= getattr(item, "samples", {})
            self.lines += lines_of_turn(core, item, decision, wakes_before_s)
            return decision

        core.give = noted

    def pages(self):
        core, state = self.core, self.core.state
        ledger, wall_s = fold_accounts(core.journal).closed(core.now_s), core.wall_offset_s + core.now_s
        games = Games(core.settings, state, self.samples)
        return {
            "programs": program_views(state, self.samples, core.settings, now_s=core.now_s),
            "daemon": status_view(FakeSources(state, core.settings, replace(core.memory, boot_at_s=0.0), now_s=core.now_s))[
                "daemon"
            ],
            "level": climb_view(state, core.settings, now_s=core.now_s),
            "alerts": alerts_view(state, core.settings, core.memory, now_s=core.now_s),
            "accounts": accounts_view(ledger, summary(ledger), wall_s=wall_s),
            "cost": cost_view(ledger, games, summary(ledger), wall_s=wall_s, usd_per_hour=2.0),
            "gpus": gpu_view(core.memory.gpus, state),
            "vetoes": vetoes_view(state),
            "configured": [spec_view(each, core.settings, in_use=True) for each in core.settings.programs],
        }

    def text(self):
        pages = [f"{name}: {line}" for name, page in self.pages().items() for line in lines_of(page)]
        return settled([*self.lines, "", *pages, *lines_of_state(self.core.state)])


def lines_of_turn(core, item, decision, wakes_before_s):
    lines = [f"{core.now_s:.1f} s: {type(item).__name__}"]
    for fact in decision.facts:
        kind, *body = encode(fact)
        lines.append(f"  {kind} {' '.join(str(part) for part in body)}")
    lines += [f"  -> {shown(command)}" for command in decision.commands]
    return lines + ([f"  wakes: {decision.wake_at_s}"] if decision.wake_at_s != wakes_before_s else [])


def lines_of_state(state):
    """What the facts have come to, as a snapshot keeps it: the fields that are not as at the beginning."""
    empty = json.loads(encoded(State()))
    return [f"state: {key}: {json.dumps(value)}" for key, value in json.loads(encoded(state)).items() if value != empty[key]]


def settled(lines):
    """Without what differs between machines: tokens, and the last bits of numbers."""
    text = re.sub(r"\b[0-9a-f]{32}\b", "TOKEN", "\n".join(lines)) + "\n"
    return re.sub(r"\d+\.\d{7,}(e-?\d+)?", lambda found: f"{float(found[0]):.6g}", text)


def lines_of(page):
    """A page of JSON, a line for each item of its first level."""
    if isinstance(page, dict):
        return [f"{key}: {json.dumps(value, default=list)}" for key, value in page.items()]
    return [json.dumps(each, default=list) for each in page]


def shown(command):
    """Without what is long and told elsewhere."""
    fields = []
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if isinstance(value, ProgramSpec):
            value = value.name
        fields.append(f"{field.name}={type(value).__name__ if isinstance(value, Settings | State) else repr(value)}")
    return f"{type(command).__name__}({', '.join(fields)})"


def game(name, **more):
    argv = ("python", "-m", "workers", "--game", name, "--steps", "2000000")
    known = {"digest": f"{name}-1", "builtin": True, "game": name, "batch_size": 64, "num_envs": 8}
    return ProgramSpec(name, argv, **known | more)


def ask(core, verb, *names, text=""):
    core.request += 1
    return core.give(Asked(core.now_s, verb, core.request, names, "", "alice", 1000, text))


# --- the stories ---------------------------------------------------------------------------------------------------------


def deaths(core):
    """Crashes, out of memory, a divergence, a save that fails, a configuration error; retries, and the end of patience."""
    core.running("Pong", "Breakout")
    core.later(30.0).look(
        core.report("Pong", "resumed", step=0),
        Pong={"steps": 20_000, "frames": 80_000, "steps_per_s": 500.0, "ckpt_step": 15_000, "ckpt_count": 1, "ckpt_at_s": 20.0,
              "ckpt_stall_s": 0.25, "ckpt_write_s": 1.5, "target": 2_000_000, "target_kind": "env_steps"},
        Breakout={},
    )  # fmt: skip
    core.later(5.0).look(
        core.report("Pong", "checkpoint_failed", at_ns=2, error="ENOSPC", free_bytes=1_500_000, step=21_000),
        core.report("Pong", "strange", at_ns=3, what="this"), Pong={}, Breakout={},
    )  # fmt: skip
    core.ended(
        "Pong", signal=11, steps=22_000, ckpt_step=15_000, leftovers=("sleep(7)",), last_lines=("Segmentation fault",)
    )
    core.later(1.0)
    core.running("Pong")
    core.look(core.report("Pong", "resumed", step=15_000), Pong={"steps": 15_000})
    oom = Report("out_of_memory", {"at_ns": 9, "where": "gpu", "batch_size": 64, "error": "CUDA out of memory"})
    core.later(9.0).ended(
        "Pong",
        code=EXIT_NO_MEMORY,
        reports=(oom,),
        last_lines=("torch.OutOfMemoryError: CUDA out of memory.",),
        batch_size=64,
    )
    core.to_wake()
    core.running("Pong")
    diverged = Report("diverged", {"at_ns": 11, "step": 15_500})
    core.later(9.0).ended("Pong", code=EXIT_DIVERGED, reports=(diverged,), steps=15_800)
    core.to_wake()
    core.ended("Breakout", code=78, last_lines=("config: lr must be a number",))
    core.broke("Pong")
    core.to_wake()
    core.broke("Pong", error="no such program: train", permanent=True)
    ask(core, Verb.START, "Pong", "Breakout")
    core.later(3.0).running("Pong")


def hangs(core):
    """A stall that is looked at, with and without evidence, one that is ended, and one that heals by itself."""
    core.running("Pong", "Breakout")
    for _ in range(12):
        core.later(5.0).look(Pong={"steps": int(core.now_s * 100)}, Breakout={"steps": 10})
    still = {"live_at_s": core.now_s, "progress_at_s": core.now_s, "steps": 7_000}
    core.later(400.0).look(Pong=still, Breakout={})
    core.later(1.0).look(Pong=still, Breakout={})
    core.evidence("Pong", stacks="File train.py, line 3", wchan="futex_wait")
    core.later(2.0).look(Pong=still, Breakout={})
    core.later(25.0).look(Pong=still, Breakout={})
    core.ended("Pong", signal=9)
    core.later(5.0).woke()
    core.running("Pong")
    still = {"live_at_s": core.now_s, "progress_at_s": core.now_s, "steps": 7_000}
    core.later(700.0).look(Pong=still, Breakout={})
    core.later(1.0).look(Pong=still, Breakout={})
    core.later(60.0).look(Pong=still, Breakout={})
    core.later(1.0).look(Pong={}, Breakout={})


def backups(core):
    """By the calendar and by request, whole and not; a rollback that is refused, and one that goes through."""
    core.running("Pong", "Breakout")
    core.give(BackupDue(core.later(60.0).now_s, core.wall_offset_s + 50.0))
    name = core.state.backups.making[0].name
    core.give(BackupMade(core.later(2.0).now_s, name, "", {"Pong": 5}, 3_000_000, "link", ("old",), {"Breakout": "EIO"}))
    ask(core, Verb.BACKUP, text="Before Friday")
    core.give(BackupMade(core.now_s, core.state.backups.making[0].name, "the disk is full"))
    for checked, restored in (
        ({"error": "its list is damaged"}, None),
        ({"programs": ("Gone",)}, None),
        ({"programs": ("Pong",)}, {"error": "EIO", "steps": {"Pong": 5}}),
        ({"programs": ("Pong",)}, {"error": "EIO"}),
        ({"programs": ("Pong", "Breakout")}, {"steps": {"Pong": 5, "Breakout": 6}, "kept": True}),
    ):
        core.later(10.0)
        ask(core, Verb.ROLLBACK, *(() if len(checked.get("programs", ())) == 2 else ("Pong",)), text=name)
        ask(core, Verb.ROLLBACK, "Pong", text="another")
        kept_as = core.state.backups.rollback.kept_as
        core.give(BackupChecked(core.now_s, kept_as, **checked))
        for program in ("Pong", "Breakout"):
            if restored is not None and core.program(program).attempt is not None and core.attempt(program).stop is not None:
                core.ended(program, code=75)
        if restored is not None:
            core.give(BackupRestored(core.now_s, kept_as, **restored))
            core.later(1.0).woke()
            if core.program("Pong").attempt is not None:
                core.running(*(each for each in ("Pong", "Breakout") if core.attempt(each).pid is None))


def starts(core):
    """What a new daemon finds: survivors, ends, starts that never came to be, strangers; a reboot; the way down."""
    core.running("Pong", "Breakout")
    core.later(10.0).look(Pong={"steps": 4_000, "ckpt_step": 3_000, "ckpt_count": 1}, Breakout={"steps": 500})
    core.later(20.0).begin(core.survivor("Pong", Survival.ALIVE), core.survivor("Breakout", Survival.ENDED, code=1))
    core.later(5.0).begin(core.survivor("Pong", Survival.VANISHED), core.survivor("Breakout", Survival.NEVER))
    core.running(*(name for name in ("Pong", "Breakout") if core.program(name).attempt is not None))
    core.later(1_000.0)
    core.reboot(
        "boot-2", steps={"Pong": 9_000, "Breakout": 700}, ckpt_steps={"Pong": 8_500}, last_sign_s=core.now_s - 90.0,
        last_sign_wall_s=core.wall_offset_s + core.now_s - 90.0, boot_wall_s=core.wall_offset_s + core.now_s - 30.0,
        mark_at_s=core.now_s - 95.0, kind="power", last_words=("nothing was said",),
    )  # fmt: skip
    core.running("Pong", "Breakout")
    core.look(core.report("Pong", "resumed", step=8_500), Pong={"steps": 8_500}, Breakout={})
    core.load(replace(core.settings, programs=(game("Pong", digest="Pong-2"), game("Qbert"))))
    core.ended("Pong", code=75)
    core.ended("Breakout", code=75)
    ask(core, Verb.STOP, "Qbert")
    ask(core, Verb.SHUTDOWN)
    for name in tuple(core.state.live):
        core.spawned(name)
        core.ended(name, code=75)
    core.later(30.0).begin(box={"hostname": "alpha", "machine": "1", "product": "2"})
    core.later(60.0).reboot("boot-3", box={"hostname": "beta", "machine": "3", "product": "4"})


def hardware(core):
    """GPUs that come, go, fall off the bus and report errors; a disk that fills up; what stands against a level."""
    core.begin()
    core.see(gpus(gpu(free_mb=10), gpu(1, free_mb=70_000)), Host(disk_free_bytes=9_000 * MB, available_bytes=9_000 * MB))
    core.later(5.0).see(gpus(gpu(free_mb=70_000), gpu(1, lost="it has fallen off the bus")))
    core.running(*core.state.live)
    core.later(5.0).see(gpus(gpu(), xids=(Xid(1, 0, 31), Xid(2, 5, 79))), Host(disk_free_bytes=9 * MB))
    core.later(5.0).see(Gpus(None, "nvmlDeviceGetMemoryInfo has not answered for 6 s", 6.0))
    core.later(700.0).see(gpus(gpu(), gpu(1)), Host(disk_free_bytes=9_000 * MB, available_bytes=9_000 * MB))
    for target, error in (("command", "exit status 1"), ("command", ""), (next(iter(core.memory.reaching)), "timeout")):
        reaching = core.memory.reaching.get(target)
        if reaching is not None and reaching.sending:
            core.give(AlertTried(core.later(1.0).now_s, target, reaching.sending, error))
    for _ in range(3):
        core.to_wake()


def climbing(core):
    """Up the ladder, a reboot at a trial, a pin and its end."""
    core.begin()
    core.train(30.0)
    core.until_level("wide")
    power_cut(core, "boot-2")
    core.train(3_600.0, period_s=60.0)
    core.pin("heavy", for_s=600.0)
    core.train(900.0, period_s=60.0)
    core.pin("light")
    core.unpin()
    core.train(300.0, period_s=60.0)


def unrecorded(core):
    """A worker that lives although the journal knows of no start: taken over, and ended where it is not wanted."""
    core.running("Pong")
    core.ask("stop", "Breakout")
    found = {name: (3, Survivor(f"{name}-lost", Survival.ALIVE, 500, 11, 501, 12)) for name in ("Breakout", "Nobody")}
    core.later(9.0)
    alive = dict([core.survivor("Pong", Survival.ALIVE)])
    core.memory = Memory()
    core.give(Began(core.now_s, core.settings, BootEvidence("boot-1", None, "test"), alive, 101, "0.2.0", "salt", found))
    if core.program("Breakout").attempt is not None:
        core.ended("Breakout", code=75)
    core.later(5.0).ended("Pong", code=0)


def requests(core):
    """Every request, where it changes something and where it does not; a configuration; and the end by SIGTERM."""
    core.running("Pong", "Breakout")
    for verb, signal in (("start", ""), ("signal", "USR1"), ("clear", "")):
        core.ask(verb, "Pong", "Nobody", signal=signal)
    core.ask("restart", "Pong")
    core.ask("start", "Pong")
    core.ended("Pong", code=75)
    core.running("Pong")
    core.ask("stop", "Pong", "Breakout", "Nobody")
    core.ended("Pong", code=75)
    core.ended("Breakout", code=75)
    for verb in ("stop", "signal", "restart"):
        core.ask(verb, "Pong", signal="HUP" if verb == "signal" else "")
    core.ask("start", "Breakout")
    core.running("Pong", "Breakout")
    core.later(60.0).load(replace(core.settings, programs=(game("Pong", priority=7),)))
    core.ended("Breakout", code=75)
    core.later(5.0).terminate()
    core.ask("start", "Pong")
    core.ended("Pong", code=75)


CORES = {
    "deaths": (deaths, lambda: Core(settings(game("Pong"), game("Breakout"), alerts=ALERTS))),
    "hangs": (hangs, lambda: Core(settings(game("Pong"), game("Breakout"), alerts=ALERTS))),
    "backups": (backups, lambda: Core(settings(game("Pong"), game("Breakout"), alerts=ALERTS))),
    "starts": (starts, lambda: Core(settings(game("Pong"), game("Breakout"), alerts=ALERTS))),
    "hardware": (
        hardware,
        lambda: Core(settings(game("Pong", min_free_mb=100), game("Breakout", gpu=1), alerts=ALERTS,
                              prechecks=PrecheckSettings(disk_free_mb=500))),
    ),
    "climbing": (climbing, lambda: Box(ladder(alerts=ALERTS))),
    "requests": (requests, lambda: Core(settings(game("Pong"), game("Breakout"), alerts=ALERTS))),
    "unrecorded": (unrecorded, lambda: Core(settings(game("Pong"), game("Breakout"), alerts=ALERTS))),
}  # fmt: skip


def check(name, text):
    path = STORIES / f"{name}.txt"
    if WRITE:
        path.write_text(text)
    assert text.splitlines() == path.read_text().splitlines()


@pytest.mark.parametrize("name", CORES)
def test_a_whole_story(name):
    story, make = CORES[name]
    told = RecordedCore(make())
    story(told.core)
    check(name, told.text())


def test_every_metric_with_its_help():
    """Of two stories, because no box has all of them."""
    lines = []
    for name in ("deaths", "hardware"):
        story, make = CORES[name]
        story(core := make())
        memory = replace(core.memory, boot_at_s=0.0)
        sources = FakeSources(core.state, core.settings, memory, core.journal, core.now_s, worst_gap_s=0.25)
        for family in metrics_view(sources):
            lines.append(f"{name}: {family.kind} {family.name} {', '.join(family.labels)}: {family.help}")
            lines += [f"  {' '.join(labels)} {value:.6g}" for labels, value in family.samples]
    check("metrics", settled(lines))


@pytest.mark.parametrize("name", OTHERS)
def test_the_whole_of_what_other_tests_look_at(name, monkeypatch):
    module, *scenes = OTHERS[name]
    give, lines, cores = Core.give, [], []

    def noted(core, item):
        cores.append(core)
        wakes_before_s, decision = core.wake_at_s, give(core, item)
        if decision.facts or decision.commands or decision.wake_at_s != wakes_before_s:
            lines.extend(lines_of_turn(core, item, decision, wakes_before_s))
        return decision

    monkeypatch.setattr(Core, "give", noted)
    for each in scenes:
        scene, *args = (each,) if isinstance(each, str) else each
        lines.append(f"--- {scene}")
        getattr(module, f"test_{scene}")(*args)
        lines.extend(lines_of_state(cores[-1].state))
    check(name, settled(lines))
