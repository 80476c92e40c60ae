"""The terminal view: draws snapshots and the program's output, changes nothing about the run."""
