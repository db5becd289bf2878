// Plays a script through RingTracer and Encoder; requests go to standard output, length-delimited, drops to standard error.
//
//   play BUFFER RECORDS IDENTIFIERS TEXT METADATA CONTEXT INSTRUCTIONS < script
//
// With NEARLY_WRAPPED (and -fno-access-control) the ring's positions begin a few records and bytes before 2^32, as if days had
// passed.
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "memory.h"
#include "otel_bridge.h"
#include "pal.h"
#include "script.h"

namespace {

uint64_t no_clock() {
  return 0;
}

void drain(otel_bridge::Encoder& encoder, std::vector<char>& buffer, bool open_too, bool drops_alone) {
  otel_bridge::FileTransport out(stdout);
  while (const size_t size = encoder.encode(buffer.data(), buffer.size(), open_too, drops_alone)) {
    if (size > buffer.size() || !out.send(buffer.data(), size)) {
      std::exit(2);
    }
    encoder.accept();
  }
}

#ifdef NEARLY_WRAPPED
void pass_days(otel_bridge::internal::Ring& ring) {
  constexpr uint32_t kRecordsLeft = 16;
  constexpr uint32_t kBytesLeft = 96;
  ring.head_ = ring.tail_ = ring.known_tail_ = 0U - kRecordsLeft;
  ring.arena_head_ = ring.arena_tail_ = 0U - kBytesLeft;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  if (argc != 8) {
    return 2;
  }
  uint32_t sizes[7];
  for (int i = 0; i < 7; ++i) {
    sizes[i] = static_cast<uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
  }
  Memory memory({sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[6]});
  otel_bridge::RingTracer tracer(memory.ring);
#ifdef NEARLY_WRAPPED
  pass_days(tracer.recorder_.ring);
#endif
  otel_bridge::StreamInfo info;
  info.stream_id[15] = 1;
  otel_bridge::Platform platform;
  platform.unix_ns = no_clock;
  otel_bridge::Encoder encoder(tracer, info, platform);
  std::vector<char> buffer(sizes[0] != 0 ? sizes[0] : encoder.least_buffer());
  script::Player player;
  for (const auto& line : script::read(stdin)) {
    const et_timestamp_t now = pal::ticks;
    if (line[0] == "M") {
      tracer.set_method(script::text_of(line[1]).c_str());
    } else if (line[0] == "T") {
      tracer.set_trace_context(script::text_of(line[1]).c_str(), script::text_of(line[2]).c_str());
    } else if (line[0] == "A") {
      tracer.set_attribute(script::text_of(line[1]).c_str(), otel_bridge::Value::text(script::text_of(line[2]).c_str()));
    } else if (line[0] == "X") {
      tracer.end_block(static_cast<executorch::runtime::Error>(std::strtoul(line[1].c_str(), nullptr, 10)));
    } else if (line[0] == "P" || line[0] == "O") {
      drain(encoder, buffer, line[0] == "O", false);
      pal::ticks = now;  // the anchor reads the clock, and the script knows nothing of it
    } else if (line[0] == "C") {
      pal::ticks += std::strtoull(line[1].c_str(), nullptr, 10);
    } else if (!player.play(tracer, line)) {
      return 2;
    }
  }
  tracer.end_block();
  drain(encoder, buffer, true, true);
  encoder.count_drops();
  for (size_t i = 0; i < otel_bridge::kDropReasons; ++i) {
    const auto reason = static_cast<otel_bridge::Drop>(i);
    if (encoder.dropped(reason) != 0) {
      std::fprintf(stderr, "%s %llu\n", otel_bridge::name_of(reason), static_cast<unsigned long long>(encoder.dropped(reason)));
    }
  }
  return 0;
}
