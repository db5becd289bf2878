// Counts allocations of the heap while events are produced, encoded and sent as text.
#include <cstdio>
#include <cstdlib>
#include <new>

#include "otel_bridge.h"
#include "pal.h"

extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_calloc(size_t, size_t);

namespace {

unsigned long allocations = 0;

void ignore(void*, const char*, size_t) {}

}  // namespace

extern "C" void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}

extern "C" void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}

int main() {
  std::free(std::malloc(1));
  const unsigned long counted = allocations;  // so that the test knows that allocations are seen
  static otel_bridge::StaticRingTracer<> tracer;
  otel_bridge::StreamInfo info;
  otel_bridge::Attributes<128> resource;
  resource.add("service.name", otel_bridge::Value::text("app"));
  otel_bridge::draw_stream_id(info.stream_id);
  otel_bridge::ArmourTransport transport(ignore);
  static unsigned char buffer[16384];
  otel_bridge::Uploader uploader(tracer, info, transport, buffer, sizeof(buffer));
  const unsigned long before = allocations;
  for (int run = 0; run < 1000; ++run) {
    otel_bridge::Inference inference(tracer, "forward", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    tracer.set_attribute("threads", otel_bridge::Value::integer(4));
    tracer.create_event_block("Execute");
    const auto method = tracer.start_profiling("Method::execute");
    tracer.set_chain_debug_handle(0, 1);
    for (int i = 0; i < 5; ++i) {
      char name[32];
      std::snprintf(name, sizeof(name), "conv #%d", i);
      const auto entry = tracer.start_profiling_delegate(name, -1);
      tracer.end_profiling_delegate(entry, "metadata", 8);
      tracer.log_profiling_delegate(nullptr, i, 1, 2);
    }
    tracer.set_chain_debug_handle(-1, 0);
    tracer.end_profiling(method);
    inference.end();
    while (uploader.poll() == 0) {
    }
  }
  uploader.flush(1000);
  const unsigned long during = allocations - before;
  std::printf("%lu %lu %llu\n", counted, during, static_cast<unsigned long long>(uploader.counts().sent));
  return 0;
}
