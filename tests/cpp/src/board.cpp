// A board for docs/device/firmware.cpp: the UART is standard output, and a method of one delegate call runs twice.
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <executorch/runtime/core/event_tracer.h>

#include "pal.h"

executorch::runtime::EventTracer* profiling_tracer();
void profiling_report(executorch::runtime::Error error);

extern "C" void board_uart_write(const char* text, size_t size) {
  std::fwrite(text, 1, size, stdout);
}

extern "C" uint32_t board_millis() {
  return static_cast<uint32_t>(pal::ticks / 160000);
}

extern "C" void board_random(uint8_t* bytes, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<uint8_t>(i + 1);
  }
}

int main() {
  executorch::runtime::EventTracer& tracer = *profiling_tracer();
  pal::step = 1000;
  for (int run = 0; run < 2; ++run) {
    tracer.create_event_block("Execute");
    const auto method = tracer.start_profiling("Method::execute");
    tracer.set_chain_debug_handle(0, 0);
    const auto call = tracer.start_profiling("DELEGATE_CALL");
    tracer.log_profiling_delegate(nullptr, 0, 100, 7300, "\x01", 1);
    tracer.end_profiling(call);
    tracer.set_chain_debug_handle(executorch::runtime::kUnsetChainId, executorch::runtime::kUnsetDebugHandle);
    tracer.end_profiling(method);
    std::puts("I inference done");
    profiling_report(executorch::runtime::Error::Ok);
  }
  return 0;
}
