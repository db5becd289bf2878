"""
How many texts of a scene were cut to what back ends take.

Invariant: a text counts once for each span that shows it; those of a resource count once a pass for each request that has it.
"""

import numpy as np

from otel_bridge.spans import attributes as at
from otel_bridge.spans.scene import Scene
from otel_bridge.spans.tree import NOWHERE


def count_cuts(scene: Scene) -> int:
    """The texts that were cut in all spans and resources of a scene."""
    of_template = [each.cuts for each in scene.templates]
    of_metadata = scene.metadata.cuts
    of_inference = [each.root.cuts + at.count_cuts(each.attributes) for each in scene.inferences]
    resources = sum([each.cuts for each in scene.resources])
    if not (any(of_template) or any(of_inference) or of_metadata.any()):
        return resources
    shown = ~scene.counters.silent
    faced = shown.copy()
    faced[scene.tree.root[scene.tree.root != NOWHERE]] = False  # a root shows its inference's face
    spans = np.array(of_template, np.int64)[scene.template[faced]].sum() + of_metadata[scene.decoded[shown]].sum()
    spans += np.array(of_inference, np.int64)[scene.inference[scene.has_root_span]].sum()
    return int(spans) + resources
