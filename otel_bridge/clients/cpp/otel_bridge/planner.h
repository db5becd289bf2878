// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Planner: which records go into the next request.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drop_ledger.h"
#include "drops.h"
#include "identifier_table.h"
#include "plan.h"
#include "protobuf.h"
#include "records.h"
#include "request_tables.h"
#include "ring.h"
#include "ring_memory.h"

namespace otel_bridge {

namespace internal {

/// Marks records of the ring as it plans, and takes none from it. By the consumer alone.
class Planner {
 public:
  // At most, beside its context: tags, kind, position, count, error, run index, part; and its method.
  static constexpr size_t kBlockBytes = 96 + field_size(kMaxMethodBytes);

  Planner(const MemoryMap& memory, Ring& ring, const IdentifierTable& identifiers, DropLedger& ledger)
      : part_context(memory.context + memory.context_bytes),
        chosen(memory),
        completions(memory),
        ring_(ring),
        identifiers_(identifiers),
        ledger_(ledger),
        seen_(ring) {}

  /// Plans a request of at most `budget` bytes beside those of its stream from records before `limit`. `open_too`: take also
  /// events of a block that has not ended.
  void make_plan(uint32_t limit, size_t budget, bool open_too) {
    plan = Plan{};
    plan.begin = plan.end = ring_.begin();
    plan.arena = ring_.arena_begin();
    budget_ = budget;
    seen_.forget();
    plan_blocks(limit, open_too);
  }

  Plan plan{};
  Part part{};
  uint8_t* const part_context;
  ChosenIdentifiers chosen;
  CompletionTable completions;

 private:
  static constexpr uint32_t kMaxRows = 1U << 20;
  static constexpr uint32_t kMaxBlocks = 1U << 16;

  enum class Stop { kEnded, kOpen, kFull };

  void plan_blocks(uint32_t limit, bool open_too) {
    if (part.active) {
      plan.any_part = true;
      plan.used += kBlockBytes + part.context_size;
      ++plan.blocks;
      const Stop stop = plan_rows(limit, true);
      plan.part_ends = stop == Stop::kEnded;
      if (stop == Stop::kOpen && (!open_too || plan.rows == 0)) {
        return wait_for_more();
      }
      if (stop != Stop::kEnded) {
        return;
      }
    }
    while (plan.end != limit && plan.blocks < kMaxBlocks) {
      const Plan before = plan;
      const Stop stop = plan_block(limit);
      if (stop == Stop::kEnded) {
        continue;
      }
      plan = before;
      seen_.forget();  // what was seen of the block's metadata is not in the plan
      if (before.blocks == 0 && (stop == Stop::kFull || open_too)) {
        plan_first_part(limit);
      }
      return;
    }
  }

  /// Plans a whole block; unless it returns `kEnded`, the plan is of no use.
  Stop plan_block(uint32_t limit) {
    const Record& begin = ring_[plan.end];
    const uint32_t context = has_entry(begin) ? ring_.entry_size(plan.arena) : 0;
    plan.arena = has_entry(begin) ? ring_.after_entry(plan.arena) : plan.arena;
    plan.used += kBlockBytes + context;
    ++plan.end;
    ++plan.blocks;
    return plan.used > budget_ ? Stop::kFull : plan_rows(limit, false);
  }

  void plan_first_part(uint32_t limit) {
    const Record& begin = ring_[plan.end];
    part = {true, begin.chain, 0, begin.identifier, 0, begin.duration, begin.start, 0};
    if (has_entry(begin)) {
      part.context_size = ring_.entry_size(plan.arena);
      ring_.copy(part_context, plan.arena + Ring::kLengthBytes, part.context_size);
      plan.arena = ring_.after_entry(plan.arena);
    }
    completions.clear();
    plan.used += kBlockBytes + part.context_size;
    ++plan.end;
    ++plan.blocks;
    plan.any_part = true;
    plan.begins_part = true;
    const Stop stop = plan_rows(limit, true);
    plan.part_ends = stop == Stop::kEnded;
    if (stop == Stop::kOpen && plan.rows == 0) {
      part.active = false;
      wait_for_more();
    }
  }

  /// Nothing goes yet: more of the open block will come.
  void wait_for_more() {
    const uint32_t begin = plan.begin;
    plan = Plan{};
    plan.begin = plan.end = begin;
    plan.arena = ring_.arena_begin();
    completions.undo();
  }

  Stop plan_rows(uint32_t limit, bool in_part) {
    for (; plan.end != limit; ++plan.end) {
      Record& next = ring_[plan.end];
      if (next.kind == kBlockBegin) {
        return Stop::kEnded;
      }
      if (next.kind == kBlockEnd) {
        ++plan.end;
        return Stop::kEnded;
      }
      if (is_event(next) && !plan_row(next, in_part)) {
        return Stop::kFull;
      }
      plan.arena = has_entry(next) ? ring_.after_entry(plan.arena) : plan.arena;
    }
    return Stop::kOpen;
  }

  /// Adds an event to the plan, or skips it for good; false: the request is full.
  bool plan_row(Record& row, bool in_part) {
    const uint32_t index = chosen.index_of(row.identifier, plan.identifiers);
    const uint32_t content = has_entry(row) ? ring_.entry_size(plan.arena) : 0;
    const uint32_t at = plan.arena + Ring::kLengthBytes;
    SeenMetadata::Entry* seen = has_entry(row) ? seen_.look_up(at, content) : nullptr;
    const bool repeated = seen != nullptr && seen_.has(*seen);
    const uint32_t metadata = seen == nullptr ? 0 : 1 + (repeated ? seen->index : plan.metadata);
    const size_t cost = row_size(row, index, metadata) + (in_part ? 5 : 1) +  // of its occurrence
                        (index == plan.identifiers ? 4 + identifier_size(identifiers_[row.identifier]) : 0) +
                        (seen != nullptr && !repeated ? field_size(content) : 0);
    if (plan.used + cost > budget_ || plan.rows == kMaxRows) {
      if (!in_part || plan.rows != 0) {
        return false;
      }
      skip(row, has_entry(row) ? Drop::kMetadataTooLarge : Drop::kBufferTooSmall);
      return true;
    }
    uint32_t occurrence = 0;
    if (in_part && row.instruction >= 0) {
      Completions* const known = completions.of(row);
      if (known == nullptr) {
        skip(row, Drop::kInstructionsFull);
        return true;
      }
      occurrence = known->planned;
      known->planned += row.kind == kCall ? 1 : 0;
    }
    if (index == plan.identifiers) {
      chosen.put(row.identifier, plan.identifiers++);
    }
    if (seen != nullptr && !repeated) {
      seen_.put(*seen, at, plan.metadata++);
    }
    row.metadata = metadata;
    add_row(row, index, occurrence);
    plan.used += cost;
    return true;
  }

  /// Bytes of an event in the columns, without its occurrence.
  size_t row_size(const Record& row, uint32_t identifier, uint32_t metadata) const {
    return 1 + varint_size(zigzag(row.instruction)) + varint_size(row.chain) + varint_size(identifier) +
           varint_size(zigzag(static_cast<int64_t>(row.start - plan.previous_start))) +
           varint_size(row.duration) + varint_size(metadata);
  }

  void add_row(const Record& row, uint32_t identifier, uint32_t occurrence) {
    ++plan.rows;
    plan.instruction += varint_size(zigzag(row.instruction));
    plan.chain += varint_size(row.chain);
    plan.any_chain = plan.any_chain || row.chain != 0;
    plan.identifier += varint_size(identifier);
    plan.start += varint_size(zigzag(static_cast<int64_t>(row.start - plan.previous_start)));
    plan.previous_start = row.start;
    plan.duration += varint_size(row.duration);
    plan.metadata_index += varint_size(row.metadata);
    plan.any_metadata = plan.any_metadata || row.metadata != 0;
    plan.occurrence += varint_size(occurrence);
  }

  void skip(Record& record, Drop reason) {
    record.kind = kSkipped;
    ledger_.add(reason);
  }

  Ring& ring_;
  const IdentifierTable& identifiers_;
  DropLedger& ledger_;
  SeenMetadata seen_;
  size_t budget_ = 0;
};

}  // namespace internal

}  // namespace otel_bridge
