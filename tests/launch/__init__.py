"""Tests of launch: a script as it is, timed."""
