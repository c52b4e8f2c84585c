"""Tests by kind of fault: each over all functions, methods, modules, optimizers or ways, so that a new one is in it by being public.

half types rounded on the way        test_half_numbers, test_half_units, test_half_distributions, test_half_training
results that are aliases or not      test_shared_memory
constructors                         test_constructors
compiled code that changed since     test_stale (and test_stale_not: nothing else makes a new trace)
resuming and switching               test_schedulers_resumed, test_batch_norm_flags, test_optimizer_switches
tails, limits, huge numbers          test_right_by_mathematics
warnings of NumPy's                  test_silence
pickling                             test_pickled
layouts and memory in traces         test_trace_layouts, test_shared_arguments, test_captured_views
dtype, shape, requires_grad          test_result_properties
writes that backward must know       test_library_writes
sizes in caches                      test_sizes_in_caches
index arithmetic of kernels          test_kernel_index_width
sums and variances                   test_sum_accuracy
what a rule refuses                  test_refusals
strange but legal inputs             test_strange_inputs, test_small_shapes, test_named_arguments
distributions at no value of theirs  test_distributions_beyond

`calls.py` has a sample call of everything public (`catalogue/`); `tests/fuzz` tries programs of several lines.
"""
