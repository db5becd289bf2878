// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// grpc_allocations TARGET LOST_TARGET: prints how many allocations of the heap were seen on purpose, and how many sending made.
#include <cstdio>
#include <cstdlib>

#include "otel_bridge_grpc.h"

extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_calloc(size_t, size_t);
extern "C" void* __libc_realloc(void*, size_t);

namespace {

unsigned long allocations = 0;

}  // namespace

extern "C" void* malloc(size_t size) {
  ++allocations;
  return __libc_malloc(size);
}

extern "C" void* calloc(size_t count, size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}

extern "C" void* realloc(void* block, size_t size) {
  ++allocations;
  return __libc_realloc(block, size);
}

int main(int, char** arguments) {
  const unsigned long at_start = allocations;
  void* volatile one = std::malloc(1);
  const unsigned long counted = allocations - at_start;  // so that the test knows that allocations are seen
  std::free(one);
  static char request[100000];
  otel_bridge::GrpcTransport transport(arguments[1]);
  otel_bridge::GrpcTransport lost(arguments[2]);
  const unsigned long before = allocations;
  int sent = 0;
  for (int i = 0; i < 100; ++i) sent += transport.send(request, static_cast<size_t>(i) * 1000) ? 1 : 0;
  lost.send(request, sizeof request);
  const unsigned long made = allocations - before;
  std::printf("%lu %lu %d\n", counted, made, sent);
  return 0;
}
