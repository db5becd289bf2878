// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Armour: requests as text for a serial log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "transport.h"

namespace otel_bridge {

/// Writes requests as text for a serial log, which `otel-bridge send --uart` reads: a line that opens, base64 in lines of 76
/// characters, `=` and the CRC-32 (that of zlib) of the request in 8 hexadecimal digits, a line that closes.
class ArmourTransport final : public Transport {
 public:
  /// Takes `size` characters; a line comes in one call, with its newline.
  using Print = void (*)(void* self, const char* text, size_t size);

  explicit ArmourTransport(Print print, void* self = nullptr) : print_(print), self_(self) {}

  bool send(const void* data, size_t size) override {
    static constexpr char kBegin[] = "-----BEGIN OTEL BRIDGE EVENTS-----\n";
    static constexpr char kEnd[] = "-----END OTEL BRIDGE EVENTS-----\n";
    const auto* at = static_cast<const uint8_t*>(data);
    print_(self_, kBegin, sizeof(kBegin) - 1);
    for (size_t left = size; left != 0;) {
      const size_t taken = left < kBytesALine ? left : kBytesALine;
      print_line(at + (size - left), taken);
      left -= taken;
    }
    print_checksum(crc32(at, size));
    print_(self_, kEnd, sizeof(kEnd) - 1);
    return true;
  }

  /// A `Print` that writes to a `FILE*`, given as `self`.
  static void print_to_file(void* self, const char* text, size_t size) {
    std::fwrite(text, 1, size, static_cast<std::FILE*>(self));
  }

 private:
  static constexpr size_t kBytesALine = 57;

  void print_line(const uint8_t* data, size_t size) {
    static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char line[kBytesALine / 3 * 4 + 1];
    size_t length = 0;
    for (size_t i = 0; i < size; i += 3) {
      uint32_t bits = 0;
      for (size_t k = i; k < i + 3; ++k) {
        bits = bits << 8 | (k < size ? data[k] : 0U);
      }
      for (size_t k = 0; k < 4; ++k) {
        line[length++] = i + k > size ? '=' : kDigits[bits >> (18 - 6 * k) & 0x3F];
      }
    }
    line[length++] = '\n';
    print_(self_, line, length);
  }

  void print_checksum(uint32_t crc) {
    char line[10] = {'='};
    for (unsigned i = 0; i < 8; ++i) {
      line[1 + i] = "0123456789abcdef"[crc >> (28 - 4 * i) & 0xF];
    }
    line[9] = '\n';
    print_(self_, line, sizeof(line));
  }

  /// Bit by bit: a table would cost a microcontroller a kilobyte, and a log line costs more time than this.
  static uint32_t crc32(const uint8_t* data, size_t size) {
    uint32_t crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < size; ++i) {
      crc ^= data[i];
      for (int bit = 0; bit < 8; ++bit) {
        crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
      }
    }
    return ~crc;
  }

  Print print_;
  void* self_;
};

}  // namespace otel_bridge
