// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Reads blocks of headers from standard input, each behind its size in four bytes, and prints a line for each: "ok" or "bad", and
// the fields that it gave, in hexadecimal digits: NAME:VALUE.
#include <cstdio>
#include <vector>

#include "otel_bridge/frame.h"
#include "otel_bridge/header_reader.h"

namespace {

class Printer final : public otel_bridge::internal::HeaderSink {
 public:
  void header(std::string_view name, std::string_view value) override {
    fields_.push_back(' ');
    add(name);
    fields_.push_back(':');
    add(value);
  }

  void print(bool whole) {
    fields_.push_back('\0');
    std::printf("%s%s\n", whole ? "ok" : "bad", fields_.data());
    fields_.clear();
  }

 private:
  void add(std::string_view text) {
    for (char c : text) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      fields_.insert(fields_.end(), digits, digits + 2);
    }
  }

  std::vector<char> fields_;
};

}  // namespace

int main() {
  Printer printer;
  otel_bridge::internal::HeaderReader reader;
  uint8_t size[4];
  while (std::fread(size, 1, sizeof size, stdin) == sizeof size) {
    std::vector<uint8_t> block(otel_bridge::internal::get_u32(size));  // of exactly that size: a sanitizer sees a byte beyond
    if (std::fread(block.data(), 1, block.size(), stdin) != block.size()) return 2;
    printer.print(reader.read(block.data(), block.size(), printer));
  }
  return 0;
}
