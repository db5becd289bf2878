"""
What blocks stand for: the method that each ran, the tree of its events, and a template for each of them.

Invariants
* Everything is found for one block of each kind, and once per distinct row; what stands for the whole is spread by index.
* What kinds mean follows from their key alone (spans/kinds.py), in which a mapping stands by its digest: so it is remembered
  over passes, and an upload or a deletion leaves nothing stale. Parts of split inferences are found anew each time.
* What is remembered has bounds, in entries and in bytes; what was used least lately goes first. It holds names and identifiers
  of senders, as templates do, and nothing that they say of themselves or of one inference.
"""

import sys
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from otel_bridge.mapping.compiled import CompiledMapping, CompiledMethod
from otel_bridge.mapping.method import attribute
from otel_bridge.mapping.resolve import Attribution, resolve
from otel_bridge.mapping.xnnpack_order import Orders
from otel_bridge.model.events import Block, EventBatch, EventKind
from otel_bridge.pipeline.order import derive
from otel_bridge.spans.compile import Template, Templates
from otel_bridge.spans.describe import Face, describe
from otel_bridge.spans.distinct import distinct
from otel_bridge.spans.kinds import Kinds
from otel_bridge.spans.tree import Tree, grow
from otel_bridge.spans.withholding import Withhold

_ORDERED_EVENTS = 1 << 18
"""Of the sequences whose alignment is kept: some thousand models' worth."""
_KEPT, _KEPT_BYTES = 256, 16 << 20
"""Combinations of kinds that are remembered, and about their bytes; a pass of a few models has one of few combinations."""
_MOST_ROWS = 2048
"""Of kinds that are remembered. What takes more is many models at once, or kinds that do not come again."""
_ROW_BYTES, _TEMPLATE_BYTES = 80, 1500
"""About what a row or a block, and a template beside its text, take."""


@dataclass(frozen=True, slots=True, eq=False)
class Meaning:
    """
    What k kinds stand for; rows are those of `Kinds.examples`, n of them.

    methods    name of the method that each kind ran; None: not known
    tree       of the examples
    template   int64[n]   index into `templates`
    """

    methods: tuple[str | None, ...]
    tree: Tree
    templates: tuple[Template, ...]
    template: NDArray[np.int64]


class Meanings:
    """
    Finds what kinds mean, and remembers it. One thread uses it at a time.

    templates  where templates are made and kept
    withhold   what is shown of what mappings say
    """

    def __init__(self, templates: Templates, withhold: Withhold) -> None:
        self._templates = templates
        self._withhold = withhold
        self._orders = Orders(_ORDERED_EVENTS)
        self._known: OrderedDict[tuple[object, ...], tuple[Meaning, int]] = OrderedDict()
        self._bytes = 0

    def of(self, batch: EventBatch, kinds: Kinds, mappings: Sequence[CompiledMapping | None]) -> Meaning:
        """What the kinds of a batch mean; `mappings` are those of its streams, by whose digests its blocks were told apart."""
        key = kinds.key if kinds.bounds[-1] <= _MOST_ROWS else None
        known = self._known.get(key) if key is not None else None
        if key is not None and known is not None:
            self._known.move_to_end(key)
            return known[0]
        examples = kinds.examples(batch)
        meaning = self._find(examples, [mappings[block.stream] for block in examples.blocks])
        if key is None:
            return meaning
        _lock(meaning)
        self._known[key] = meaning, _size_of(key, meaning)
        self._bytes += self._known[key][1]
        while len(self._known) > _KEPT or self._bytes > _KEPT_BYTES:
            self._bytes -= self._known.popitem(last=False)[1][1]
        return meaning

    def _find(self, examples: EventBatch, mappings: list[CompiledMapping | None]) -> Meaning:
        known: dict[tuple[int, int, str | None], Attribution] = {}
        attributions = []
        for block, mapping, method in zip(examples.blocks, mappings, attribute(examples, mappings), strict=True):
            key = (id(mapping), id(method), block.method)
            found = known.get(key)
            if found is None:
                found = known[key] = _attribution(block, mapping, method)
            attributions.append(found)
        tree = grow(examples)
        methods = tuple([each.method_name for each in attributions])
        return Meaning(methods, tree, *self._templates_of(examples, tree, attributions))

    def _templates_of(
        self, examples: EventBatch, tree: Tree, attributions: list[Attribution]
    ) -> tuple[tuple[Template, ...], NDArray[np.int64]]:
        """One template for each distinct (method, instruction, identifier), and int64[n] the template of each row."""
        derived = derive(examples, tree, attributions, self._orders)
        numbers: dict[tuple[str | None, str | None], int] = {}
        meanings = [numbers.setdefault((each.digest, each.method_name), len(numbers)) for each in attributions]
        meaning = np.array(meanings, np.int64)
        said = (
            examples.name,
            examples.instruction.astype(np.int64) + 1,
            examples.kind,
            examples.chain,
            tree.kernel + 1,
            derived,
        )
        first, template = distinct([meaning[tree.block], *said] if len(numbers) > 1 else said)
        columns = (tree.block, examples.kind, examples.name, examples.instruction, examples.chain, tree.kernel, derived)
        rows = zip(*(each[first].tolist() for each in columns), strict=True)
        return tuple([self._template(examples, attributions, row) for row in rows]), template

    def _template(self, examples: EventBatch, attributions: list[Attribution], row: tuple[int, ...]) -> Template:
        """The template of rows with these values in the columns that `_templates_of` tells apart; first, their block."""
        block, kind, name_number, instruction, chain, kernel_number, derived = row
        names, attribution = examples.names, attributions[block]
        name = names[name_number]
        kernel = str(names[kernel_number]) if kernel_number >= 0 else None

        def face() -> Face:
            is_kind = EventKind(kind)
            resolution = resolve(attribution, is_kind, instruction, name, derived)
            method = attribution.method_name
            said = describe(is_kind, name, resolution, method=method, instruction=instruction, chain=chain, kernel=kernel)
            shown = self._withhold(said.attributes)
            return said if shown is said.attributes else replace(said, attributes=shown)

        key = (attribution.digest, attribution.method_name, kind, name, instruction, chain, kernel, derived)
        return self._templates.get(key, face)


def _attribution(block: Block, mapping: CompiledMapping | None, method: CompiledMethod | None) -> Attribution:
    if mapping is None:
        return Attribution(method_name=block.method)
    only = next(iter(mapping.methods.values())) if method is None and len(mapping.methods) == 1 else None
    delegates = frozenset(only.delegates) if only is not None else None
    return Attribution(mapping.digest, method, delegates, method.name if method else None, mapping.only_backend)


def _lock(meaning: Meaning) -> None:
    """Let nobody write to what several passes share."""
    for column in fields(meaning.tree):
        getattr(meaning.tree, column.name).flags.writeable = False
    meaning.template.flags.writeable = False


def _size_of(key: tuple[tuple[Hashable, ...], ...], meaning: Meaning) -> int:
    """About the bytes of a meaning and of its key, templates and texts included, although others may have them too."""
    said = sum([sys.getsizeof(part) + sum(map(sys.getsizeof, part)) for part in key])
    templates = sum([_TEMPLATE_BYTES + len(template.encoded) for template in meaning.templates])
    return said + templates + _ROW_BYTES * (len(meaning.template) + len(meaning.methods))
