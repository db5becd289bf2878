// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Header reader: header fields of HTTP/2 (RFC 7541), read.
//
// Invariants
// * There is no dynamic table: the connection announces SETTINGS_HEADER_TABLE_SIZE 0, so a reference beyond the static table is
//   an error, and every block can be read, or left unread, alone.
// * Reading allocates nothing. A text goes to the sink as a view that lasts for the call.
// * A field whose Huffman-coded text decodes to more than the scratch holds is left out; the block stays readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "header_tables.h"

namespace otel_bridge {

namespace internal {

// Takes the fields of a block, in their order.
class HeaderSink {
 public:
  virtual void header(std::string_view name, std::string_view value) = 0;

 protected:
  ~HeaderSink() = default;
};

// Reads one header block whole.
class HeaderReader {
 public:
  // False: the block breaks RFC 7541, which ends the connection (COMPRESSION_ERROR). Fields before the fault have been given.
  bool read(const uint8_t* block, size_t size, HeaderSink& sink) {
    at_ = block;
    end_ = block + size;
    bool begun = false;
    while (at_ != end_) {
      const uint8_t first = *at_;
      if ((first & 0xe0) == 0x20) {  // a new size of the table, only before the first field; see `kMaxTableSize`
        uint32_t table_size = 0;
        if (begun || !integer(5, &table_size) || table_size > kMaxTableSize) return false;
        continue;
      }
      begun = true;
      if (!((first & 0x80) != 0 ? indexed(sink) : literal((first & 0x40) != 0 ? 6 : 4, sink))) return false;
    }
    return true;
  }

 private:
  // A peer that has not read our SETTINGS yet may announce up to the table's default size; only its use would be an error.
  static constexpr uint32_t kMaxTableSize = 4096;

  struct Text {
    std::string_view view;
    bool left_out = false;
  };

  bool indexed(HeaderSink& sink) {
    uint32_t index = 0;
    std::string_view name;
    std::string_view value;
    if (!integer(7, &index) || !entry(index, &name, &value)) return false;
    sink.header(name, value);
    return true;
  }

  bool literal(unsigned prefix_bits, HeaderSink& sink) {
    uint32_t index = 0;
    Text name;
    Text value;
    std::string_view unused;
    if (!integer(prefix_bits, &index)) return false;
    if (index == 0 ? !text(name_, sizeof name_, &name) : !entry(index, &name.view, &unused)) return false;
    if (!text(value_, sizeof value_, &value)) return false;
    if (!name.left_out && !value.left_out) sink.header(name.view, value.view);
    return true;
  }

  static bool entry(uint32_t index, std::string_view* name, std::string_view* value) {
    if (index == 0 || index > kStaticEntries) return false;
    const char* at = kStaticTable;
    for (uint32_t texts = 2 * (index - 1); texts > 0; --texts) at += std::strlen(at) + 1;
    *name = std::string_view(at);
    *value = std::string_view(at + name->size() + 1);
    return true;
  }

  // Section 5.1; more than four bytes after the prefix is more than any block is long.
  bool integer(unsigned prefix_bits, uint32_t* value) {
    if (at_ == end_) return false;
    const uint32_t mask = (1u << prefix_bits) - 1;
    uint32_t read = *at_++ & mask;
    if (read == mask) {
      for (unsigned shift = 0;; shift += 7) {
        if (at_ == end_ || shift > 21) return false;
        const uint8_t byte = *at_++;
        read += static_cast<uint32_t>(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) break;
      }
    }
    *value = read;
    return true;
  }

  // Section 5.2.
  bool text(char* scratch, size_t room, Text* out) {
    if (at_ == end_) return false;
    const bool coded = (*at_ & 0x80) != 0;
    uint32_t size = 0;
    if (!integer(7, &size) || size > static_cast<size_t>(end_ - at_)) return false;
    const uint8_t* from = at_;
    at_ += size;
    if (coded) return decode(from, size, scratch, room, out);
    out->view = std::string_view(reinterpret_cast<const char*>(from), size);
    return true;
  }

  static bool decode(const uint8_t* from, size_t size, char* scratch, size_t room, Text* out) {
    size_t written = 0;
    uint32_t code = 0;
    uint32_t first = 0;   // first code of the length reached
    unsigned symbol = 0;  // its symbol, as an index into kHuffmanSymbols
    unsigned length = 0;
    for (size_t bit = 0; bit < size * 8; ++bit) {
      code = code << 1 | (from[bit / 8] >> (7 - bit % 8) & 1u);
      first <<= 1;
      if (++length > 30) return false;
      if (code - first < kHuffmanCodes[length]) {
        symbol += code - first;
        if (symbol == sizeof kHuffmanSymbols) return false;  // EOS inside a text
        if (written < room) scratch[written] = static_cast<char>(kHuffmanSymbols[symbol]);
        ++written;
        code = first = 0;
        symbol = length = 0;
        continue;
      }
      first += kHuffmanCodes[length];
      symbol += kHuffmanCodes[length];
    }
    if (length > 7 || code != (1u << length) - 1) return false;  // the padding is the beginning of EOS
    out->left_out = written > room;
    out->view = std::string_view(scratch, written < room ? written : room);
    return true;
  }

  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
  char name_[64];
  char value_[4096];
};

}  // namespace internal

}  // namespace otel_bridge
