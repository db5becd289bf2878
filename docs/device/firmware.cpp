#define OTEL_BRIDGE_HOSTED 0
#include "otel_bridge.h"

// What the board has: a UART, a clock of milliseconds, and a source of random bytes.
extern "C" void board_uart_write(const char* text, size_t size);
extern "C" uint32_t board_millis();
extern "C" void board_random(uint8_t* bytes, size_t size);

namespace {

// Room for 128 events, 32 identifiers with 1 KB of text, 1 KB of metadata, 128 bytes of context, and 32 instructions.
struct Small {
  static constexpr otel_bridge::RingSizes kSizes = {128, 32, 1024, 1024, 128, 32};
};
otel_bridge::StaticRingTracer<Small> tracer;

unsigned char buffer[2048];

uint64_t now_ms() {
  return board_millis();
}

void write_line(void*, const char* text, size_t size) {
  board_uart_write(text, size);
}

}  // namespace

// The tracer, for `Program::load_method(name, memory_manager, tracer)`.
executorch::runtime::EventTracer* profiling_tracer() {
  return &tracer;
}

// After `Method::execute`: ends the inference and writes it to the UART.
void profiling_report(executorch::runtime::Error error) {
  static otel_bridge::ArmourTransport uart(write_line);
  static otel_bridge::Uploader* uploader = nullptr;
  if (uploader == nullptr) {
    otel_bridge::StreamInfo info;
    board_random(info.stream_id, sizeof(info.stream_id));
    info.build_id = "keyword-spotter-7";
    info.tick_numerator = 1000000000;  // nanoseconds a tick: a cycle counter of 160 MHz ...
    info.tick_denominator = 160000000;
    info.counter_bits = 32;            // ... that wraps every 27 seconds
    otel_bridge::UploaderOptions options;
    options.platform.now_ms = now_ms;
    static otel_bridge::Uploader made(tracer, info, uart, buffer, sizeof(buffer), options);
    uploader = &made;
  }
  tracer.end_block(error);
  while (uploader->poll() == 0) {
  }
}
