// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Plan: what the next request will hold, and how large it becomes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protobuf.h"
#include "records.h"

namespace otel_bridge {

namespace internal {

/// What the next request will hold: records [begin, end), and the exact size of each column.
struct Plan {
  uint32_t begin, end;  // records
  uint32_t arena;       // where the records from `end` on have their metadata
  uint32_t rows, blocks, identifiers, metadata;
  size_t used;          // of the budget: at most so many bytes
  size_t instruction, chain, identifier, start, duration, metadata_index, occurrence;  // bytes of the columns
  uint64_t previous_start;
  bool any_chain;
  bool any_metadata;
  bool any_part;
  bool begins_part;  // the part that this request begins with is the first of its inference
  bool part_ends;    // it is the last
};

/// An inference that goes in parts, between two requests.
struct Part {
  bool active;
  uint8_t kind;
  uint32_t number;
  uint32_t method;  // as in its record
  uint32_t context_size;
  uint64_t position, run_index, first_event;
};

inline bool is_event(const Record& record) { return record.kind >= kRuntime && record.kind <= kDelegate; }

/// Whether it has an entry in the arena.
inline bool has_entry(const Record& record) { return record.metadata != 0; }

inline size_t identifier_size(const Identifier& identifier) {
  return identifier.length == Identifier::kNumber
             ? 1 + varint_size(zigzag(static_cast<int32_t>(identifier.at)))
             : field_size(identifier.length);
}

}  // namespace internal

}  // namespace otel_bridge
