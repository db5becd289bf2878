// One thread or two produce events, another drains them all the while, through a transport that fails now and then.
//
//   threads PRODUCERS BLOCKS > requests
//
// Event n of a thread has the start n, the duration n % 1000, the identifier n % 50 and n as its metadata.
#include <atomic>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "memory.h"
#include "otel_bridge.h"
#include "pal.h"

namespace {

constexpr uint64_t kEventsABlock = 25;

unsigned attempts = 0;

bool write_mostly(void*, const void* data, size_t size) {
  otel_bridge::FileTransport file(stdout);
  return ++attempts % 3 != 0 && file.send(data, size);
}

void produce(otel_bridge::RingTracer& tracer, uint64_t first, unsigned long blocks) {
  uint64_t number = first;
  for (unsigned long block = 0; block < blocks; ++block) {
    tracer.set_method(block % 2 == 0 ? "encode" : "decode");
    tracer.create_event_block("Execute");
    for (uint64_t i = 0; i < kEventsABlock; ++i, ++number) {
      char text[24];
      const int length = std::snprintf(text, sizeof(text), "%" PRIu64, number);
      tracer.log_profiling_delegate(nullptr, static_cast<int32_t>(number % 50), number, number + number % 1000, text,
                                    static_cast<size_t>(length));
    }
    if (block % 5 != 0) {
      tracer.end_block();
    }
    if (block % 16 == 0) {
      std::this_thread::yield();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  const unsigned long producers = std::strtoul(argv[1], nullptr, 10);
  const unsigned long blocks = std::strtoul(argv[2], nullptr, 10);
  Memory memory({512, 64, 1024, 2048, 256, 64});
  otel_bridge::RingTracer tracer(memory.ring);
  otel_bridge::StreamInfo info;
  info.stream_id[0] = 1;
  otel_bridge::CallbackTransport transport(write_mostly);
  otel_bridge::UploaderOptions options;
  options.initial_backoff_ms = 1;
  static unsigned char buffer[4096];
  otel_bridge::Uploader uploader(tracer, info, transport, buffer, sizeof(buffer), options);

  std::atomic<bool> ended{false};
  std::thread consumer([&] {
    while (!ended.load()) {
      uploader.poll();
    }
  });
  std::vector<std::thread> threads;
  for (unsigned long i = 0; i < producers; ++i) {
    threads.emplace_back(produce, std::ref(tracer), i << 32, blocks);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  ended.store(true);
  consumer.join();
  const bool flushed = uploader.flush(30000);

  uint64_t dropped = 0;
  for (size_t i = 0; i < otel_bridge::kDropReasons; ++i) {
    dropped += uploader.dropped(static_cast<otel_bridge::Drop>(i));
  }
  const uint64_t ended_events = producers * blocks * kEventsABlock;
  std::fprintf(stderr, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", ended_events, uploader.counts().sent, dropped);
  return flushed && uploader.counts().sent + dropped == ended_events ? 0 : 1;
}
