# label: RESIDUAL_HEAVY
# phase: residual
# A figure is taken from every parameter and written to disk in every step.
import json

from _parts import Net, batches, fit


class Logs(Net):
    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        norms = {}
        for _ in range(60):
            for name, parameter in self.named_parameters():
                norms[name] = parameter.detach().norm().item()
        with open("norms.jsonl", "a") as file:
            file.write(json.dumps(norms) + "\n")
        return loss


fit(Logs(), batches(100))
