"""
An export script as a user has it: the toy is lowered, its mapping uploaded, its program written.

Usage: upload_toy.py FOLDER SERVER...
Uploads to each server in turn, without source lines to the last. FOLDER gets model.pte, model.etrecord and weights.bin, the
bytes of all weights. Printed, one JSON object a server: what `upload_mapping` answered, or the error it raised.
"""

import json
import sys
from pathlib import Path

import torch
from toy_delegate import Forward, lower

from otel_bridge.aot import upload_mapping
from otel_bridge.errors import BridgeError


def main(folder: Path, *servers: str) -> None:
    """Every server."""
    program = lower("str").to_executorch()
    for server in servers:
        try:
            done = upload_mapping(
                program,
                model="toy",
                version="1.0",
                server=server,
                strip_prefix=str(Path(__file__).parent),
                with_source=server != servers[-1],
            )
            answer = {"said": str(done), "build_id": done.build_id, "digest": done.digest, "created": done.created}
        except BridgeError as error:
            answer = {"error": type(error).__name__, "said": str(error)}
        print(json.dumps(answer))  # noqa: T201 - the answer
    program.save(str(folder / "model.pte"))
    program.get_etrecord().save(folder / "model.etrecord")
    torch.manual_seed(0)  # as in `lower`
    weights = [weight.detach().numpy().tobytes() for weight in Forward().state_dict().values()]
    (folder / "weights.bin").write_bytes(b"".join(weights))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
