"""One seed of a loop over seeds (seeds.sh). Seed 2 begins at step 20,000, where seed 1 ends, and so on."""

import os
import sys

import extralife
import torch

STEPS, SEEDS = int(os.environ.get("STEPS", "20000")), 3
seed = int(sys.argv[1])
first, last = (seed - 1) * STEPS, seed * STEPS

run = extralife.init(total=SEEDS * STEPS, identity={"task": "sine", "seeds": SEEDS})
torch.manual_seed(run.seed(seed))
model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

found, step = run.restore(), first
if found and found.step >= last:
    sys.exit(0)  # this seed was done before
if found and found.step > first:
    model.load_state_dict(torch.load(found.path / "model.pt"))
    step = found.step

while step < last and not run.should_stop():
    x = torch.rand(64, 1) * 6
    loss = torch.nn.functional.mse_loss(model(x), torch.sin(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    run.step(step, loss=loss.item())
    if run.should_save() or step == last:
        with run.checkpoint(step) as directory:
            torch.save(model.state_dict(), directory / "model.pt")

if step < SEEDS * STEPS and step == last:
    sys.exit(0)  # the next seed's turn
run.leave()
