// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// send_curl URL [timeout_ms=N] [ca=FILE] [certificate=FILE] [key=FILE] [token=T]
#include "arguments.h"
#include "otel_bridge_curl.h"
#include "send_requests.h"

int main(int count, char** arguments) {
  otel_bridge::HttpOptions options;
  for (int i = 2; i < count; ++i) {
    if (const char* value = value_of(arguments[i], "timeout_ms")) options.timeout_ms = number_of(value);
    if (const char* value = value_of(arguments[i], "ca")) options.ca_file = value;
    if (const char* value = value_of(arguments[i], "certificate")) options.certificate_file = value;
    if (const char* value = value_of(arguments[i], "key")) options.key_file = value;
    if (const char* value = value_of(arguments[i], "token")) options.bearer_token = value;
  }
  curl_global_init(CURL_GLOBAL_DEFAULT);
  int result = 0;
  {
    otel_bridge::HttpTransport transport(arguments[1], options);
    char text[24];
    result = send_requests(transport, [&text](const otel_bridge::HttpTransport& sender) {
      std::snprintf(text, sizeof text, "%ld", sender.status());
      return static_cast<const char*>(text);
    });
  }
  curl_global_cleanup();
  return result;
}
