"""KEEP: the memory-mapped step log and the files beside it."""
