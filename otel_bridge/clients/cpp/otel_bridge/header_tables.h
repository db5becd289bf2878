// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Header tables: the static table and the Huffman code of HTTP/2's header fields (RFC 7541).
#pragma once

#include <cstdint>

namespace otel_bridge {

namespace internal {

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

}  // namespace internal

}  // namespace otel_bridge
