"""The tests mirror `headrace/`; `system/` runs the installed command."""
