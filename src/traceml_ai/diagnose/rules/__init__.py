"""One rule a file. A rule sees signals and nothing else: no other rule, no records.

Each module has ``meets_conditions(signals)`` and ``finding(signals)``, its thresholds with their
reason beside them. A rule whose signals are missing abstains: its conditions are not met.
"""
