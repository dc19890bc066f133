"""Lightning: two lines around `fit`."""

import extralife
import extralife.lightning
import lightning
import torch


class Sine(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch, _):
        (x,) = batch
        return torch.nn.functional.mse_loss(self.net(x), torch.sin(x))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


run = extralife.init(total=100_000, identity={"task": "sine"})
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(4096, 1) * 6), batch_size=64, shuffle=True)
trainer = lightning.Trainer(
    max_steps=run.total, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
    callbacks=[extralife.lightning.saver(run)],
)  # fmt: skip
trainer.fit(Sine(), data, ckpt_path=extralife.lightning.resume(run))
run.leave()
