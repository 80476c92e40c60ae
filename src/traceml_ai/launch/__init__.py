"""START: the user's command, unchanged, with its environment contract, signals and end."""
