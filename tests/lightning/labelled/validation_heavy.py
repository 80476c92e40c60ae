# label: OUTSIDE_HEAVY
# phase: between_steps
# check: time.between_by_cause.validation_s > 0.7 * time.between_steps_s
from _parts import Net, batches, fit

fit(Net(), batches(150), batches(40), val_check_interval=15)
