// Memory for a tracer, of sizes that are known when the program runs: as a device may take it from a heap of its own.
#pragma once

#include <vector>

#include "otel_bridge.h"

struct Memory {
  Memory(uint32_t records, uint32_t identifiers, uint32_t text, uint32_t metadata, uint32_t context, uint32_t instructions)
      : records_(records),
        identifiers_(identifiers),
        slots_(2 * identifiers),
        chosen_(2 * identifiers),
        text_(text),
        metadata_(metadata),
        context_(2 * context),
        completions_(instructions) {
    ring.records = records_.data();
    ring.record_count = records;
    ring.identifiers = identifiers_.data();
    ring.slots = slots_.data();
    ring.chosen = chosen_.data();
    ring.identifier_count = identifiers;
    ring.text = text_.data();
    ring.text_bytes = text;
    ring.metadata = metadata_.data();
    ring.metadata_bytes = metadata;
    ring.context = context_.data();
    ring.context_bytes = context;
    ring.completions = completions_.data();
    ring.completion_count = instructions;
  }

  otel_bridge::RingMemory ring;

 private:
  std::vector<otel_bridge::internal::Record> records_;
  std::vector<otel_bridge::internal::Identifier> identifiers_;
  std::vector<uint32_t> slots_, chosen_;
  std::vector<char> text_;
  std::vector<uint8_t> metadata_, context_;
  std::vector<otel_bridge::internal::Completions> completions_;
};
