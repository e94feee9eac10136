/* Every scenario, by the file that it is in. Those named thread_… use several threads and run under
 * ThreadSanitizer as well. tests/native/test_native.py reads the names here. */
#define SCENARIOS(X)                                                                               \
    /* check_record.c */                                                                           \
    X(record_every_command)                                                                        \
    X(record_refuses_other_commands) X(record_refuses_blocking) X(record_bad_arguments)            \
        X(record_bad_objects) X(record_bad_patterns) X(record_host_memory) /* check_images.c */    \
        X(images_same_as_calls) X(images_host_extents) X(images_of_kernels) X(images_of_buffers)   \
            X(images_of_themselves) X(images_depth) X(images_bad_arguments)                        \
                X(images_empty_slots) /* check_order.c */                                          \
        X(order_in_order) X(order_out_of_order) X(order_two_queues) X(order_events)                \
            X(order_outside_events) X(order_dropped_events) X(order_pending_after_error)           \
                X(order_failed_event) X(order_foreign_event) X(order_waits) X(order_housekeeping)  \
                    X(order_housekeeping_after_error) X(order_mixed_wait) X(order_callback)        \
                        X(wait_called_back) X(wait_at_once) X(thread_wait)                        \
                        X(thread_without_signals) /* check_blocks.c */                           \
        X(block_deeply_nested) X(block_looks_once) X(block_interposed) X(block_interposed_between) \
            X(block_same_queue) X(block_nested) X(block_ended_twice) X(block_pool_exhausted)       \
                X(block_queue_counts) X(block_driver_refuses) X(block_table_locked)                \
                    X(block_late_calls) X(block_stub_slots) X(block_empty_slots)                   \
                        X(block_other_slots) X(thread_intruder) X(thread_intruder_outlives)        \
                            X(thread_intruder_of_a_fork)                                           \
                            X(thread_late_calls) X(thread_many_blocks) X(thread_one_queue)         \
                                X(thread_arguments) X(thread_svm) /* check_arguments.c */          \
        X(arguments_frozen) X(arguments_unseen) X(arguments_unseen_allowed) X(arguments_kinds)     \
            X(arguments_not_told) X(arguments_sampler_like_memory) X(arguments_no_clone)           \
                X(arguments_no_clone_unseen) X(arguments_forked) X(arguments_svm)                 \
                    X(arguments_two_drivers)                                                       \
                    X(arguments_address_again) X(arguments_released) /* check_svm.c */             \
        X(svm_freed_in_block) X(svm_freed_after_block) X(svm_never_freed) X(svm_freed_twice)       \
            X(svm_freed_by_enqueue) X(svm_freed_some) X(svm_freed_some_later) X(svm_unknown)       \
                X(svm_two_graphs) X(svm_free_recorded) X(svm_free_function) X(svm_failed_free)     \
                    X(svm_bad_list) /* check_replay.c */                                           \
        X(replay_same_as_calls) X(replay_times) X(replay_barriers) X(replay_events_on_queues)      \
            X(replay_empty) X(replay_fails) X(replay_updated) /* check_helping.c */                \
        X(helping_finish) X(helping_events) X(helping_knows_what_is_later) X(helping_takes_turns)  \
            X(helping_markers) X(helping_forgets) X(helping_and_recording) X(helping_inner_events) \
                X(helping_forgets_events) X(helping_refused) /* check_enqueue.c */                 \
        X(enqueue_parts_in_order) X(enqueue_parts_out_of_order) X(enqueue_parts_fail)              \
        X(enqueue_waited)                                                                          \
            X(enqueue_after_a_failure) X(enqueue_updates) X(enqueue_until)                         \
                X(enqueue_driver_buffer) /* check_direct.c */                                      \
        X(direct_runs) X(direct_updated_in_flight) X(direct_other_buffers)                         \
            X(direct_released_in_flight) X(direct_refuses) X(direct_no_memory) X(direct_parameter) \
                X(direct_series) X(direct_until) X(direct_special) X(direct_faster_function)       \
                    X(direct_many_shapes) X(thread_direct_pool) X(thread_direct_pool_by_kind)      \
                        X(thread_direct_pool_kept_off) X(thread_direct_teams)                     \
                        X(thread_direct_counts) X(thread_direct_pool_asleep) /* check_cells.c */  \
        X(cells_of_numbers) X(cells_of_memory) X(cells_of_rewrites) /* check_launches.c */         \
        X(launches_appended) X(launches_refused) X(launches_pointers) X(launches_many)             \
            X(launches_updated) X(launches_entry) /* check_ur_launches.c */                        \
        X(ur_launches_appended) X(ur_launches_without_lists) X(ur_launches_refused)                \
            X(ur_changes_of_arguments) X(ur_changes_of_kinds) X(ur_changes_of_ranges)              \
                X(ur_changes_of_kernels) X(ur_changes_of_samplers) /* check_ze.c */                \
        X(ze_kernels) X(ze_appends) X(ze_appends_no_memory) X(ze_updates) X(ze_executes)           \
            X(ze_waits_twice) X(thread_ze) X(ze_signals_events) X(ze_signals_counter_events)       \
                X(thread_ze_events) /* check_layers.c */                                           \
        X(layer_forwards) X(layer_answers) X(layer_alone) X(layer_table_no_memory) X(log_one_call) \
            X(log_keeps_errno) X(log_wild_pointers) X(log_end_of_memory) X(log_limit) X(log_long)  \
                X(log_no_memory) X(log_look) X(thread_one_log) X(thread_log_comes_and_goes)        \
                    X(thread_taking_layers)                                                        \
                        X(layer_all_taken) /* check_memory.c; the last one uses up what is there   \
                                              once in a process */                                 \
        X(memory_fails_anywhere) X(memory_fails_from_anywhere) X(driver_fails_anywhere)            \
            X(memory_of_replay) X(memory_of_free) X(safe_reads) X(block_patches_exhausted)

#define DECLARE(name) scenario name;
SCENARIOS(DECLARE)
#undef DECLARE
