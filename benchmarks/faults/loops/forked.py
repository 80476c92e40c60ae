"""Several trainings in processes forked from one: what ended each is the last that it says.

The imports are paid for once, so that a short check can strike many real trainings.
"""

import os
import sys
import traceback

from _record import Record

LOOPS = sys.argv[1].split(",")
main = Record("main")

import torch  # before the fork, as a job of torch.multiprocessing has it
import torch._dynamo  # an optimizer's first step would import it

if "lightning" in LOOPS:
    import lightning_fit

    import lightning  # noqa: F401 - paid for here, once
if "monai" in LOOPS:
    import monai.engines  # noqa: F401 - the same
    import monai_run


def plain(record):
    import time

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(1, record.steps + 1):
        scratch = torch.empty(64 << 20, dtype=torch.uint8)
        del scratch
        optimizer.zero_grad()
        loss = (model(torch.full((4, 8), float(number % 7))) - 1).square().mean()
        loss.backward()
        optimizer.step()
        record.step(number, loss.item())
        time.sleep(record.pause_s)


def train(number, kind):
    os.environ |= {"RANK": str(number), "WORLD_SIZE": str(len(LOOPS)), "LOCAL_RANK": str(number)}
    record = Record()
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") if kind != "plain" else ():
        del os.environ[name]  # Lightning would look for the others
    fit = plain if kind == "plain" else lightning_fit.fit if kind == "lightning" else monai_run.fit
    fit(record)
    record.done()


children = {}
for number, kind in enumerate(LOOPS):
    pid = os.fork()
    if pid == 0:  # which ends as a process of multiprocessing does
        code = 1
        try:
            train(number, kind)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    children[pid] = number
while children:
    pid, status = os.wait()
    main.say(f"ended {children.pop(pid)} {os.waitstatus_to_exitcode(status)}")
print("trained", flush=True)
main.done()
