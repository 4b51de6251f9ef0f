"""A weight without part in the loss: AdamW leaves it alone in eager, and decays it in a compiled step."""

import torch


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.used(x)
        return y.sum(), self.unused(y)


def moved(compiled: bool) -> float:
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss, output = model(x)
        loss.backward()
        optimizer.step()
        return output

    before = model.unused.weight.detach().clone()
    (torch.compile(step, backend="aot_eager") if compiled else step)(torch.randn(2, 4))
    return float((model.unused.weight - before).abs().max())


if __name__ == "__main__":
    print(f"eager: {moved(False):.2g}, compiled: {moved(True):.2g}")
