"""Two ranks of a MONAI trainer, started by torchrun; one of them waits for its batches."""

import torch
import torch.distributed
from _kit import Net, SupervisedTrainer, loader

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(Net())
SupervisedTrainer(
    device=torch.device("cpu"),
    max_epochs=2,
    train_data_loader=loader(30, sleep_s=0.03 * rank),
    network=net,
    optimizer=torch.optim.SGD(net.parameters(), lr=1e-3),
    loss_function=torch.nn.MSELoss(),
).run()
torch.distributed.destroy_process_group()
