# label: RESIDUAL_HEAVY
# phase: residual
from _parts import Net, batches, fit, spin


class Slow(Net):
    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        spin(0.02)
        return loss


fit(Slow(), batches(100))
