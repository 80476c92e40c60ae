"""The nouns: what a step record, a process, a sample, a run and a summary are."""
