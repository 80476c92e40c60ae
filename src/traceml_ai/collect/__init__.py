"""GATHER: tail the step logs, sample the host and the processes, keep the summary on disk fresh."""
