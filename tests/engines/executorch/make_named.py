"""
Export a model whose program holds a build id as named data, as `otel_bridge.aot` writes it.

Usage: make_named.py MODEL.pte BUILD_ID
"""

import sys
from pathlib import Path

import torch
from executorch.exir import to_edge


class Twice(torch.nn.Module):
    """Adds a tensor to itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Twice `x`."""
        return x + x


def main() -> None:
    """Export."""
    edge = to_edge(torch.export.export(Twice(), (torch.ones(4),)))
    edge._named_data_store.add_named_data("otel_bridge.build_id", sys.argv[2].encode())
    Path(sys.argv[1]).write_bytes(edge.to_executorch().buffer)


if __name__ == "__main__":
    main()
