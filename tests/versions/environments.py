"""The environments that ``make versions`` makes: one row each."""

from collections.abc import Mapping
from dataclasses import dataclass, field

PINNED = "pinned"
"""The row that has what constraints.txt says; the others are compared with it by --envs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A Python and what is installed into it.

    A whole environment has torchduet installed from a wheel, and the requirements narrow what it asks
    for. A ``worker`` has the requirements alone: the pinned environment's parent measures in it.
    ``threads``: of every run in this environment. ``faults``: model, mode and compiler -> a fault of this
    torch, shown without torchduet, because of which the candidate fails parity.
    """

    name: str
    python: str
    requirements: tuple[str, ...]
    worker: bool = False
    constraints: bool = False
    threads: int = 1
    faults: Mapping[tuple[str, str, str], str] = field(default_factory=dict)


ATTENTION_2_2 = (
    "Inductor of torch 2.2.2 computes gradients of this attention that are wrong by 1 to 4 % on a CPU: "
    "timm.create_model('vit_base_patch16_224', depth=1, embed_dim=64, num_heads=2, img_size=32) shows it"
)

TABLE = (
    Environment(name=PINNED, python="3.11", requirements=("torch", "torchvision"), constraints=True),
    Environment(  # the oldest of every range in pyproject.toml
        name="oldest",
        python="3.10",
        requirements=(
            *("torch==2.11.0", "torchvision==0.26.0", "transformers==4.57.0", "timm==1.0.20"),
            *("numpy==2.0.0", "scipy==1.13.0", "matplotlib==3.9.0", "psutil==6.0.0", "rich==13.7.0"),
            *("jinja2==3.1.0", "packaging==24.0", "plotly==6.0.0", "tomli==2.0.0"),
        ),
    ),
    Environment(
        name="middle",
        python="3.12",
        requirements=("torch==2.12.1", "torchvision==0.27.1", "transformers==5.0.0", "timm==1.0.31"),
    ),
    Environment(
        name="newest",
        python="3.13",
        requirements=(
            *("torch==2.15.0", "torchvision==0.29.2", "transformers==5.23.0", "timm==1.0.31"),
            "numpy==2.4.6",
        ),
    ),
    Environment(
        name="worker-2.0",
        python="3.10",  # torch 2.0 compiles on no later one
        requirements=(
            *("torch==2.0.1", "torchvision==0.15.2", "transformers==4.41.2", "timm==1.0.31", "numpy<2"),
            "setuptools<80",
        ),
        worker=True,
    ),
    Environment(
        name="worker-2.2",
        python="3.11",
        requirements=(
            *("torch==2.2.2", "torchvision==0.17.2", "transformers==4.41.2", "timm==1.0.31", "numpy<2"),
            "setuptools<80",
        ),
        worker=True,
        faults={
            (model, "training", "inductor"): ATTENTION_2_2
            for model in (
                *("deit_base_distilled_patch16_224", "vit_base_patch16_224"),
                "vit_base_patch16_siglip_224",
            )
        },
    ),
    Environment(
        name="worker-2.6",
        python="3.11",
        requirements=(
            *("torch==2.6.0", "torchvision==0.21.0", "transformers==4.57.6", "timm==1.0.31"),
            "setuptools<80",
        ),
        worker=True,
        threads=2,  # Inductor of torch 2.6 computes wrong gradients of embeddings on one thread
    ),
)
