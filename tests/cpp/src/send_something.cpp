// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// send_something TARGET REQUEST: the least that sends by gRPC.
#include <cstdio>
#include <cstring>

#include "otel_bridge_grpc.h"

static_assert(sizeof(otel_bridge::GrpcTransport) <= 40 << 10, "docs/cpp-transports.md says so");

int main(int count, char** arguments) {
  if (count != 3) return 2;
  static otel_bridge::GrpcTransport transport(arguments[1]);
  if (!transport.send(arguments[2], std::strlen(arguments[2]))) std::puts(transport.message());
  return 0;
}
