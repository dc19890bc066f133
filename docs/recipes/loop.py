"""A plain loop: a network, an optimizer, and the client of extralife."""

import extralife
import torch

run = extralife.init(total=100_000, identity={"task": "sine", "width": 64})
torch.manual_seed(run.seed(1))
model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
batch_size = run.batch_size(256)  # less after the memory ran out

found, step = run.restore(), 0
if found:
    saved = torch.load(found.path / "training.pt")
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = found.step

while step < run.total and not run.should_stop():
    x = torch.rand(batch_size, 1) * 6
    loss = torch.nn.functional.mse_loss(model(x), torch.sin(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    run.step(step, loss=loss.item())
    if run.should_save():
        with run.checkpoint(step) as directory:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, directory / "training.pt")

run.leave()
