// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Header fields of HTTP/2 (RFC 7541), read. Nothing here is for applications.
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

namespace otel_bridge {
namespace detail {

// Appendix A: names and values, each ended by a zero, from index 1 on.
inline constexpr char kStaticTable[] =
    ":authority\0\0:method\0GET\0:method\0POST\0:path\0/\0:path\0/index.html\0:scheme\0http\0:scheme\0https\0"
    ":status\0" "200\0:status\0" "204\0:status\0" "206\0:status\0" "304\0:status\0" "400\0:status\0" "404\0:status\0" "500\0"
    "accept-charset\0\0accept-encoding\0gzip, deflate\0accept-language\0\0accept-ranges\0\0accept\0\0"
    "access-control-allow-origin\0\0age\0\0allow\0\0authorization\0\0cache-control\0\0content-disposition\0\0"
    "content-encoding\0\0content-language\0\0content-length\0\0content-location\0\0content-range\0\0content-type\0\0"
    "cookie\0\0date\0\0etag\0\0expect\0\0expires\0\0from\0\0host\0\0if-match\0\0if-modified-since\0\0if-none-match\0\0"
    "if-range\0\0if-unmodified-since\0\0last-modified\0\0link\0\0location\0\0max-forwards\0\0proxy-authenticate\0\0"
    "proxy-authorization\0\0range\0\0referer\0\0refresh\0\0retry-after\0\0server\0\0set-cookie\0\0"
    "strict-transport-security\0\0transfer-encoding\0\0user-agent\0\0vary\0\0via\0\0www-authenticate\0";
inline constexpr uint32_t kStaticEntries = 61;

// Appendix B. The code is canonical: it follows from the symbols in the order of their codes and the number of codes of each
// length. EOS, the 257th symbol, has the last code.
inline constexpr uint8_t kHuffmanCodes[31] = {0, 0, 0, 0, 0,  10, 26, 32, 6,  0, 5,  3,  2,  6, 2, 3,
                                              0, 0, 0, 3, 8,  13, 26, 29, 12, 4, 15, 19, 29, 0, 4};
inline constexpr uint8_t kHuffmanSymbols[256] = {
    48,  49,  50,  97,  99,  101, 105, 111, 115, 116, 32,  37,  45,  46,  47,  51,  52,  53,  54,  55,  56,  57,
    61,  65,  95,  98,  100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58,  66,  67,  68,  69,  70,  71,  72,
    73,  74,  75,  76,  77,  78,  79,  80,  81,  82,  83,  84,  85,  86,  87,  89,  106, 107, 113, 118, 119, 120,
    121, 122, 38,  42,  44,  59,  88,  90,  33,  34,  40,  41,  63,  39,  43,  124, 35,  62,  0,   36,  64,  91,
    93,  126, 94,  125, 60,  96,  123, 92,  195, 208, 128, 130, 131, 162, 184, 194, 224, 226, 153, 161, 167, 172,
    176, 177, 179, 209, 216, 217, 227, 229, 230, 129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170,
    173, 178, 181, 185, 186, 187, 189, 190, 196, 198, 228, 232, 233, 1,   135, 137, 138, 139, 140, 141, 143, 147,
    149, 150, 151, 152, 155, 157, 158, 165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239, 9,   142,
    144, 145, 148, 159, 171, 206, 215, 225, 236, 237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213,
    218, 219, 238, 240, 242, 243, 255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250,
    251, 252, 253, 254, 2,   3,   4,   5,   6,   7,   8,   11,  12,  14,  15,  16,  17,  18,  19,  20,  21,  23,
    24,  25,  26,  27,  28,  29,  30,  31,  127, 220, 249, 10,  13,  22};

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

}  // namespace detail
}  // namespace otel_bridge
