"""Lightning as its users write it: its default logger or its CSV files, its default checkpoints, its progress bar."""

import sys

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger


class Sine(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))

    def training_step(self, batch, _):
        (x,) = batch
        loss = torch.nn.functional.mse_loss(self.net(x), torch.sin(x))
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(64_000, 1) * 6), batch_size=64)
logger = CSVLogger(".") if "csv" in sys.argv else None
lightning.Trainer(max_epochs=1000, accelerator="cpu", logger=logger).fit(Sine(), data)
