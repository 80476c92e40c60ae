"""Pure maths on arrays: no clock, no I/O, no knowledge of what a step is."""
