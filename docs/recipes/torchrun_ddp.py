"""torchrun: rank 0 reports and saves, all ranks resume at the same step and leave after the same step.

torchrun --standalone --nproc-per-node 2 torchrun_ddp.py
"""

import extralife
import torch
import torch.distributed as dist

run = extralife.init(total=100_000, identity={"task": "sine"})
dist.init_process_group("gloo")
torch.manual_seed(run.seed(1))
net = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
model = torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

found, step = run.restore(), 0
if found:
    saved = torch.load(found.path / "training.pt")
    net.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = found.step
dist.barrier()  # no rank saves before all have read

while step < run.total:
    x = torch.rand(64, 1) * 6
    loss = torch.nn.functional.mse_loss(model(x), torch.sin(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    run.step(step, loss=loss.item())
    if run.should_save():  # on rank 0 alone
        with run.checkpoint(step) as directory:
            state = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, directory / "training.pt")
    wish = torch.tensor(float(run.should_stop()))
    dist.all_reduce(wish, dist.ReduceOp.MAX)  # a rank that leaves alone would hang the others
    if wish:
        run.stop()  # on the ranks that were not asked themselves
        break

dist.destroy_process_group()
run.leave()
