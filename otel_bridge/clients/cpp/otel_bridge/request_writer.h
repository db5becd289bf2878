// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Request writer: the bytes of a planned request, after those of its stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "identifier_table.h"
#include "plan.h"
#include "planner.h"
#include "protobuf.h"
#include "records.h"
#include "request_tables.h"
#include "ring.h"

namespace otel_bridge {

namespace internal {

class RequestWriter {
 public:
  RequestWriter(Ring& ring, const IdentifierTable& identifiers, Planner& planner)
      : ring_(ring),
        identifiers_(identifiers),
        plan_(planner.plan),
        part_(planner.part),
        part_context_(planner.part_context),
        chosen_(planner.chosen),
        completions_(planner.completions) {}

  /// Writes what is planned. Of an inference in parts one more part is gone then.
  void write(Writer& out) {
    write_tables(out);
    write_blocks(out);
    write_columns(out);
  }

 private:
  void write_tables(Writer& out) {
    for (uint32_t i = 0; i < plan_.identifiers; ++i) {
      const Identifier& identifier = identifiers_[chosen_[i]];
      out.head(2, identifier_size(identifier));
      if (identifier.length == Identifier::kNumber) {
        out.number(1, zigzag(static_cast<int32_t>(identifier.at)));
      } else {
        out.bytes(2, identifiers_.text_of(identifier), identifier.length);
      }
    }
    uint32_t arena = ring_.arena_begin();
    uint32_t written = 0;
    for (uint32_t at = plan_.begin; at != plan_.end; ++at) {
      const Record& row = ring_[at];
      if (!has_entry(row)) {
        continue;
      }
      if (is_event(row) && row.metadata == written + 1) {
        const uint32_t size = ring_.entry_size(arena);
        out.head(3, size);
        ring_.stretches(arena + Ring::kLengthBytes, size, [&](const uint8_t* data, uint32_t length) { out.raw(data, length); });
        ++written;
      }
      arena = ring_.after_entry(arena);
    }
  }

  void write_blocks(Writer& out) {
    uint32_t arena = ring_.arena_begin();
    uint32_t at = plan_.begin;
    const auto pass = [&](const Record& passed) {
      arena = has_entry(passed) ? ring_.after_entry(arena) : arena;
      ++at;
    };
    bool in_part = plan_.any_part;
    if (plan_.begins_part) {
      pass(ring_[at]);  // its beginning: what it says is kept with the part
    }
    while (in_part || at != plan_.end) {
      const Record* begin = nullptr;
      const uint32_t context = arena + Ring::kLengthBytes;
      if (!in_part) {
        begin = &ring_[at];
        pass(*begin);
      }
      uint32_t rows = 0;
      uint32_t error = 0;
      while (at != plan_.end && ring_[at].kind != kBlockBegin) {
        const Record& next = ring_[at];
        rows += is_event(next) ? 1U : 0U;
        error = next.kind == kBlockEnd ? next.identifier : error;
        const bool ends = next.kind == kBlockEnd;
        pass(next);
        if (ends) {
          break;
        }
      }
      in_part ? write_part(out, rows, error) : write_block(out, *begin, context, rows, error);
      in_part = false;
    }
  }

  /// What a block says beside its context.
  struct Face {
    uint8_t kind;
    uint32_t method;
    uint64_t position, run_index;
    uint32_t rows, error;
  };

  size_t face_size(const Face& face) const {
    const auto size = [](uint64_t value) { return value == 0 ? 0 : 1 + varint_size(value); };
    return size(face.kind == kOther ? 0 : face.kind) + size(face.position) + size(face.rows) + size(face.error) +
           (face.kind == kExecute ? 1 + varint_size(face.run_index) : 0) +
           (face.method == 0 ? 0 : field_size(identifiers_[face.method - 1].length));
  }

  void write_face(Writer& out, const Face& face) const {
    out.number_if(1, face.kind == kOther ? 0 : face.kind);  // another block goes by its name
    out.number_if(3, face.position);
    if (face.method != 0) {
      const Identifier& method = identifiers_[face.method - 1];
      out.bytes(4, identifiers_.text_of(method), method.length);
    }
    out.number_if(5, face.rows);
    out.number_if(8, face.error);
    if (face.kind == kExecute) {
      out.number(10, face.run_index);
    }
  }

  void write_block(Writer& out, const Record& begin, uint32_t context, uint32_t rows, uint32_t error) {
    const uint32_t context_size = has_entry(begin) ? ring_.entry_size(context - Ring::kLengthBytes) : 0;
    const Face face{begin.chain, begin.identifier, begin.duration, begin.start, rows, error};
    out.head(4, face_size(face) + context_size);
    write_face(out, face);
    ring_.stretches(context, context_size, [&](const uint8_t* data, uint32_t length) { out.raw(data, length); });
  }

  void write_part(Writer& out, uint32_t rows, uint32_t error) {
    const size_t part = (part_.number == 0 ? 0 : 1 + varint_size(part_.number)) + (plan_.part_ends ? 2U : 0U) +
                        (part_.first_event == 0 ? 0 : 1 + varint_size(part_.first_event));
    const Face face{part_.kind, part_.method, part_.position, part_.run_index, rows, error};
    out.head(4, face_size(face) + part_.context_size + field_size(part));
    write_face(out, face);
    out.raw(part_context_, part_.context_size);
    out.head(11, part);
    out.number_if(1, part_.number);
    out.number_if(2, plan_.part_ends ? 1 : 0);
    out.number_if(3, part_.first_event);
    ++part_.number;
    part_.first_event += rows;
    part_.active = !plan_.part_ends;
  }

  void write_columns(Writer& out) {
    if (plan_.rows == 0) {
      return;
    }
    const size_t chain = plan_.any_chain ? plan_.chain : 0;
    const size_t metadata = plan_.any_metadata ? plan_.metadata_index : 0;
    const size_t occurrence = plan_.any_part ? plan_.occurrence : 0;
    size_t size = 0;
    for (const size_t bytes : {size_t{plan_.rows}, plan_.instruction, chain, plan_.identifier, plan_.start, plan_.duration,
                               metadata, occurrence}) {
      size += bytes == 0 ? 0 : field_size(bytes);
    }
    out.head(5, size);
    uint64_t previous = 0;
    column(out, 1, plan_.rows, [](const Record& row) { return uint64_t{row.kind}; });
    column(out, 2, plan_.instruction, [](const Record& row) { return zigzag(row.instruction); });
    column(out, 3, chain, [](const Record& row) { return uint64_t{row.chain}; });
    column(out, 4, plan_.identifier,
           [&](const Record& row) { return uint64_t{chosen_.index_of(row.identifier, plan_.identifiers)}; });
    column(out, 5, plan_.start, [&](const Record& row) {
      const uint64_t delta = row.start - previous;
      previous = row.start;
      return zigzag(static_cast<int64_t>(delta));
    });
    column(out, 6, plan_.duration, [](const Record& row) { return row.duration; });
    column(out, 8, metadata, [](const Record& row) { return uint64_t{row.metadata}; });
    write_occurrences(out, occurrence);
  }

  template <class ValueOf>
  void column(Writer& out, unsigned field, size_t bytes, ValueOf value_of) {
    if (bytes == 0) {
      return;
    }
    out.head(field, bytes);
    for (uint32_t at = plan_.begin; at != plan_.end; ++at) {
      if (is_event(ring_[at])) {
        out.varint(value_of(ring_[at]));
      }
    }
  }

  /// The part comes first in a request; whole blocks after it need no occurrences, but the column has every row.
  void write_occurrences(Writer& out, size_t bytes) {
    if (bytes == 0) {
      return;
    }
    out.head(9, bytes);
    bool in_part = true;
    for (uint32_t at = plan_.begin; at != plan_.end; ++at) {
      const Record& row = ring_[at];
      in_part = in_part && (row.kind != kBlockBegin || (plan_.begins_part && at == plan_.begin));
      if (!is_event(row)) {
        continue;
      }
      if (!in_part || row.instruction < 0) {
        out.byte(0);
        continue;
      }
      Completions* const known = completions_.of(row);
      out.varint(known->sent);
      known->sent += row.kind == kCall ? 1 : 0;
    }
  }

  Ring& ring_;
  const IdentifierTable& identifiers_;
  const Plan& plan_;
  Part& part_;
  const uint8_t* const part_context_;
  const ChosenIdentifiers& chosen_;
  CompletionTable& completions_;
};

}  // namespace internal

}  // namespace otel_bridge
