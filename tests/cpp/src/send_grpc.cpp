// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// send_grpc TARGET [timeout_ms=N] [idle_ms=N] [token=T] [authority=A] [first_stream=N]
#include "arguments.h"
#include "otel_bridge_grpc.h"
#include "send_requests.h"

int main(int count, char** arguments) {
  otel_bridge::GrpcOptions options;
  uint32_t first_stream = 1;
  for (int i = 2; i < count; ++i) {
    if (const char* value = value_of(arguments[i], "timeout_ms")) options.timeout_ms = number_of(value);
    if (const char* value = value_of(arguments[i], "idle_ms")) options.idle_ms = number_of(value);
    if (const char* value = value_of(arguments[i], "token")) options.bearer_token = value;
    if (const char* value = value_of(arguments[i], "authority")) options.authority = value;
    if (const char* value = value_of(arguments[i], "first_stream")) first_stream = number_of(value);
  }
  static otel_bridge::GrpcTransport transport(arguments[1], options, first_stream);
  return send_requests(transport, [](const otel_bridge::GrpcTransport& sender) { return otel_bridge::name_of(sender.status()); });
}
