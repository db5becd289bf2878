// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// fuzz_answers SEED ROUNDS: damages what servers say, and has it read as the gRPC transport reads it.
//
// Standard input holds what servers said, each behind its size in four bytes. Prints how rounds ended, a line each: COUNT END.
// Aborts if a law of Http2Connection does not hold; a sanitizer watches the rest.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "otel_bridge/grpc_answer.h"
#include "otel_bridge/http2_connection.h"

namespace {

using Bytes = std::vector<uint8_t>;
using otel_bridge::internal::Http2Connection;

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 2 + 1) {}

  uint64_t below(uint64_t bound) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ * 0x2545f4914f6cdd1dull >> 16) % bound;
  }

 private:
  uint64_t state_;
};

using Difference = Bytes::difference_type;

Bytes::iterator place(Bytes& bytes, Random& random) {
  return bytes.begin() + static_cast<Difference>(random.below(bytes.size() + 1));
}

void damage(Bytes& bytes, const std::vector<Bytes>& said, Random& random) {
  static constexpr uint8_t kTelling[] = {0, 1, 4, 5, 8, 9, 0x20, 0x3f, 0x40, 0x7f, 0x80, 0xbe, 0xff};
  const auto from = place(bytes, random);
  const auto to = from + static_cast<Difference>(random.below(std::min<uint64_t>(40, static_cast<uint64_t>(bytes.end() - from)) + 1));
  switch (random.below(7)) {
    case 0:
      if (from != bytes.end()) *from = static_cast<uint8_t>(*from ^ (1u << random.below(8)));
      break;
    case 1:
      if (from != bytes.end()) *from = kTelling[random.below(sizeof kTelling)];
      break;
    case 2:
      bytes.erase(from, to);
      break;
    case 3: {
      const Bytes again(from, to);
      bytes.insert(place(bytes, random), again.begin(), again.end());
      break;
    }
    case 4: {
      Bytes noise(random.below(20));
      for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random.below(256));
      bytes.insert(from, noise.begin(), noise.end());
      break;
    }
    case 5: {
      Bytes other = said[random.below(said.size())];
      bytes.erase(from, bytes.end());
      bytes.insert(bytes.end(), place(other, random), other.end());
      break;
    }
    default:
      bytes.erase(to, bytes.end());
  }
}

void check(bool law, const char* what) {
  if (law) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// Has the connection read all of it, in pieces of any size, with calls and acknowledgements in between.
void read(Http2Connection& connection, otel_bridge::internal::GrpcAnswer& answer, const Bytes& bytes, Random& random) {
  static constexpr size_t kPieces[] = {9, 60, 400};
  const size_t largest = kPieces[random.below(3)];
  size_t at = 0;
  while (at < bytes.size() && connection.fault() == nullptr) {
    if (connection.call().ended && connection.can_begin()) {
      answer.begin();
      connection.begin();
    }
    if (random.below(4) == 0 || connection.room_size() == 0) {
      check(connection.room_size() != 0 || connection.control_size() != 0, "what stops the reading has to be sent");
      connection.control_sent(random.below(connection.control_size() + 1));
      connection.parse(0);
      if (connection.room_size() == 0) connection.control_sent(connection.control_size());
    }
    if (connection.sendable() != 0) connection.data_sent(random.below(connection.sendable()) + 1);
    const size_t part = std::min({static_cast<size_t>(random.below(largest) + 1), bytes.size() - at, connection.room_size()});
    std::copy_n(bytes.begin() + static_cast<Difference>(at), part, connection.room());
    at += part;
    const bool read = connection.parse(part);
    check(read == (connection.fault() == nullptr), "a fault is told");
    check(connection.sendable() <= 0x7fffffff, "no window is larger than 2^31 - 1");
    check(connection.control_size() <= 512, "what is to be said is bounded");
  }
}

std::string end_of(const Http2Connection& connection, const otel_bridge::internal::GrpcAnswer& answer) {
  if (connection.fault() != nullptr) return connection.fault();
  if (!connection.call().ended) return "more is awaited";
  std::string_view message;
  otel_bridge::internal::Counts counts;
  const bool counted = answer.message(&message) && otel_bridge::internal::read_counts(message, &counts);
  return std::string(name_of(answer.status(connection.call()))) + (counted ? ", counted" : "");
}

bool read_all(std::vector<Bytes>& said) {
  uint8_t size[4];
  while (std::fread(size, 1, sizeof size, stdin) == sizeof size) {
    said.emplace_back(otel_bridge::internal::get_u32(size));
    if (std::fread(said.back().data(), 1, said.back().size(), stdin) != said.back().size()) return false;
  }
  return !said.empty();
}

}  // namespace

int main(int count, char** arguments) {
  std::vector<Bytes> said;
  if (count != 3 || !read_all(said)) return 2;
  Random random(std::strtoull(arguments[1], nullptr, 10));
  otel_bridge::internal::GrpcAnswer answer;
  Http2Connection connection(answer);
  std::map<std::string, uint64_t> ends;
  for (uint64_t round = std::strtoull(arguments[2], nullptr, 10); round > 0; --round) {
    Bytes bytes = said[random.below(said.size())];
    for (uint64_t times = random.below(5); times > 0; --times) damage(bytes, said, random);
    connection.open();
    answer.begin();
    read(connection, answer, bytes, random);
    ++ends[end_of(connection, answer)];
  }
  for (const auto& [end, times] : ends) std::printf("%llu %s\n", static_cast<unsigned long long>(times), end.c_str());
  return 0;
}
