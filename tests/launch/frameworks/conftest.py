"""Small real trainings with the packages that users have, as scripts for `tests/system/test_run_frameworks.py`."""

collect_ignore_glob = ["*.py"]  # to be run, not imported: the packages may not be there
