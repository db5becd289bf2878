// Memory for a tracer, of sizes that are known when the program runs: as a device may take it from a heap of its own.
#pragma once

#include <vector>

#include "otel_bridge.h"

struct Memory {
  explicit Memory(const otel_bridge::RingSizes& sizes)
      : bytes_(otel_bridge::RingMemory::bytes_for(sizes)), ring(bytes_.data(), bytes_.size(), sizes) {}

 private:
  std::vector<unsigned char> bytes_;

 public:
  otel_bridge::RingMemory ring;
};
