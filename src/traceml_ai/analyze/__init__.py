"""Facts: what the step records and samples say, without judging it."""
